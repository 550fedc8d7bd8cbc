-- Orders and revenue by category and hour (tumbling windows). A late order changes the hour in which it was made.
-- keys: category, window_start
-- refresh: incremental
-- check revenue_is_not_negative: revenue >= 0
SELECT
    coalesce(item.category, 'none') AS category,
    window(created_at, '1 hour').start AS window_start,
    window(created_at, '1 hour').end AS window_end,
    count(*) AS orders,
    sum(CAST(price AS DECIMAL(18, 2))) AS revenue
FROM gold.enriched_orders
GROUP BY coalesce(item.category, 'none'), window(created_at, '1 hour')
