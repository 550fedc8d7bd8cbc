-- The accounts with the most users
SELECT account_id, users, last_change
FROM gold.user_count_by_account
ORDER BY users DESC, account_id
LIMIT 5
