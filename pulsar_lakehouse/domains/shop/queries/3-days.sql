-- Orders by day, and how many of them wait for a user or an item
SELECT order_date AS day, sum(enriched) AS enriched, sum(waiting) AS waiting
FROM (
    SELECT order_date, 1 AS enriched, 0 AS waiting FROM gold.enriched_orders
    UNION ALL
    SELECT order_date, 0, 1 FROM quarantine.waiting_orders
)
GROUP BY day
ORDER BY day
