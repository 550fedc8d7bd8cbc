-- What orders brought in, by the city that their customers lived in then. Orders that were cancelled since do not count.
-- keys: city
-- refresh: full
SELECT
    l.customer.city AS city,
    sum(l.quantity) AS pieces,
    sum(l.quantity * l.product.price) AS revenue
FROM gold.enriched_order_lines AS l
JOIN silver.orders AS o ON o.id = l.order_id
WHERE o.deleted_at IS NULL AND o.status <> 'cancelled'
GROUP BY l.customer.city
