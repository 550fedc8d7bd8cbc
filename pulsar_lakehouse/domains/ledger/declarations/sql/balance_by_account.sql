-- The balance of each account: its credits less its debits.
-- keys: account_id
-- refresh: incremental
-- publish: topic balance_by_account
SELECT
    account_id,
    count(*) AS transactions,
    sum(if(type = 'Credit', amount, -amount)) AS balance,
    max(made_at) AS last_transaction
FROM gold.enriched_transactions
GROUP BY account_id
