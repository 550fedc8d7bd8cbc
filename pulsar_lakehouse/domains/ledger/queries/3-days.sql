-- Credits and debits by day
SELECT CAST(window_start AS DATE) AS day, sum(transactions) AS transactions, sum(credits) AS credits, sum(debits) AS debits
FROM gold.balance_by_account_and_day
GROUP BY day
ORDER BY day
LIMIT 5
