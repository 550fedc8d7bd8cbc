-- Orders whose total, as the database has computed it, is what their lines cost by these prices
SELECT o.total = l.cost AS is_equal, count(*) AS orders, sum(o.total) AS total
FROM silver.orders AS o
JOIN (
    SELECT order_id, sum(quantity * product.price) AS cost FROM gold.enriched_order_lines GROUP BY order_id
) AS l ON l.order_id = o.id
GROUP BY is_equal
