-- Orders and revenue by category in sessions, which end when 30 minutes bring no order. A late order can join two
-- sessions to one, and a removed one can split one: all sessions of its category are computed anew.
-- keys: category, window_start
-- refresh: incremental
-- sources: gold.enriched_orders
SELECT
    coalesce(item.category, 'none') AS category,
    session_window(created_at, '30 minutes').start AS window_start,
    session_window(created_at, '30 minutes').end AS window_end,
    count(*) AS orders,
    sum(CAST(price AS DECIMAL(18, 2))) AS revenue
FROM gold.enriched_orders
GROUP BY coalesce(item.category, 'none'), session_window(created_at, '30 minutes')
