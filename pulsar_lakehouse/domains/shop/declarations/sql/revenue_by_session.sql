-- Orders and revenue by category and session. A session ends after a gap without an order. A late order can merge
-- two sessions, and a removed order can split one, so all sessions of its category are recomputed.
-- keys: category, window_start
-- refresh: incremental
-- parameter gap: '30 minutes'
SELECT
    coalesce(item.category, 'none') AS category,
    session_window(created_at, :gap).start AS window_start,
    session_window(created_at, :gap).end AS window_end,
    count(*) AS orders,
    sum(CAST(price AS DECIMAL(18, 2))) AS revenue
FROM gold.enriched_orders
GROUP BY coalesce(item.category, 'none'), session_window(created_at, :gap)
