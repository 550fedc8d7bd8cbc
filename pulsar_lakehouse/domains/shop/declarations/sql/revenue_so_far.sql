-- Orders and revenue by category since midnight, at the end of each hour (cumulative windows). From the first order of
-- the day on, hours without new orders have a row, too.
-- keys: category, window_end
-- refresh: incremental
SELECT
    coalesce(item.category, 'none') AS category,
    CAST(to_date(created_at) AS TIMESTAMP) AS window_start,
    window_end,
    count(*) AS orders,
    sum(CAST(price AS DECIMAL(18, 2))) AS revenue
FROM gold.enriched_orders
LATERAL VIEW explode(
    sequence(
        date_trunc('HOUR', created_at) + INTERVAL 1 HOUR,
        date_trunc('DAY', created_at) + INTERVAL 24 HOURS,
        INTERVAL 1 HOUR
    )
) hours AS window_end
GROUP BY coalesce(item.category, 'none'), CAST(to_date(created_at) AS TIMESTAMP), window_end
