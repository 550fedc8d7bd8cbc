-- The accounts with the highest balances, and where they are
SELECT b.account_id, b.balance, b.transactions, a.district_id, a.frequency
FROM gold.balance_by_account AS b
JOIN silver.accounts AS a ON a.account_id = b.account_id
ORDER BY b.balance DESC, b.account_id
LIMIT 5
