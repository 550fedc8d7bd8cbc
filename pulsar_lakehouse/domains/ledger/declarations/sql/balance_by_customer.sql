-- What each customer has paid in, less what the customer has paid out, whichever account it was.
-- keys: customer_id
-- refresh: incremental
-- publish: topic balance_by_customer
SELECT
    customer_id,
    count(*) AS transactions,
    sum(if(type = 'Credit', amount, -amount)) AS balance
FROM gold.enriched_transactions
GROUP BY customer_id
