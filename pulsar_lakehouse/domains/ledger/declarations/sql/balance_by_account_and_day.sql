-- By how much the balance of each account changed each day (tumbling windows). A late transaction changes its day.
-- keys: account_id, window_start
-- refresh: incremental
-- publish: topic balance_by_account_and_day
SELECT
    account_id,
    window(made_at, '1 day').start AS window_start,
    window(made_at, '1 day').end AS window_end,
    count(*) AS transactions,
    sum(if(type = 'Credit', amount, 0)) AS credits,
    sum(if(type = 'Debit', amount, 0)) AS debits,
    sum(if(type = 'Credit', amount, -amount)) AS balance_change
FROM gold.enriched_transactions
GROUP BY account_id, window(made_at, '1 day')
