-- Items whose price has changed since they were ordered
SELECT i.id AS item_id, i.name AS name, o.item.price AS price_then, i.price AS price_now, count(*) AS orders
FROM gold.enriched_orders AS o
JOIN silver.items AS i ON i.id = o.item_id
WHERE i.price <> o.item.price
GROUP BY i.id, i.name, o.item.price, i.price
ORDER BY orders DESC, item_id, price_then
LIMIT 5
