-- Orders and revenue by category in the hour before each quarter hour (sliding windows). Each order counts in four.
-- keys: category, window_start
-- refresh: incremental
SELECT
    coalesce(item.category, 'none') AS category,
    window(created_at, '1 hour', '15 minutes').start AS window_start,
    window(created_at, '1 hour', '15 minutes').end AS window_end,
    count(*) AS orders,
    sum(CAST(price AS DECIMAL(18, 2))) AS revenue
FROM gold.enriched_orders
GROUP BY coalesce(item.category, 'none'), window(created_at, '1 hour', '15 minutes')
