-- How many users an account has. A user that moves counts in one account less, and in another more.
-- keys: account_id
-- refresh: incremental
-- sources: silver.account_users
-- publish: topic user_count_by_account, postgres user_count_by_account
SELECT
    account_id,
    count(*) AS users,
    max(event_time) AS last_change
FROM silver.account_users
WHERE deleted_at IS NULL
GROUP BY account_id
