-- The customers who have saved the most in a week
SELECT w.customer_id, c.full_name, CAST(w.window_start AS DATE) AS since, w.transactions, w.balance_change AS saved
FROM gold.balance_by_customer_and_week AS w
JOIN silver.customers AS c ON c.customer_id = w.customer_id
ORDER BY saved DESC, w.customer_id, since
LIMIT 5
