-- Lines at the price of their time, though the product has another one now
SELECT l.order_id, l.product.name AS product, l.quantity, l.product.price AS price_then, p.price AS price_now,
    l.customer.city AS city_then
FROM gold.enriched_order_lines AS l
JOIN silver.products AS p USING (sku)
WHERE p.price <> l.product.price AND p.deleted_at IS NULL
ORDER BY abs(p.price / l.product.price - 1) DESC, l.order_id, l.line
LIMIT 5
