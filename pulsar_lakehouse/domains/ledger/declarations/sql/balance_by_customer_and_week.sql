-- The same in the seven days before each midnight (sliding windows). Each transaction counts in seven.
-- keys: customer_id, window_start
-- refresh: incremental
-- publish: topic balance_by_customer_and_week
SELECT
    customer_id,
    window(made_at, '7 days', '1 day').start AS window_start,
    window(made_at, '7 days', '1 day').end AS window_end,
    count(*) AS transactions,
    sum(if(type = 'Credit', amount, -amount)) AS balance_change
FROM gold.enriched_transactions
GROUP BY customer_id, window(made_at, '7 days', '1 day')
