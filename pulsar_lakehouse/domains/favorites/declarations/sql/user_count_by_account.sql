-- How many users each account has. When a user moves, one account has a user less, and another has one more.
-- keys: account_id
-- refresh: incremental
-- publish: topic user_count_by_account
SELECT
    account_id,
    count(*) AS users,
    max(event_time) AS last_change
FROM silver.account_users
WHERE deleted_at IS NULL
GROUP BY account_id
