-- Waiting orders by user, with what they wait for and since when, oldest first
SELECT user_id, reason, missing_entity AS waits_for, missing_key AS key, count(*) AS orders, min(waiting_since) AS since
FROM quarantine.waiting_orders
GROUP BY user_id, reason, missing_entity, missing_key
ORDER BY since, orders DESC, user_id, key
LIMIT 5
