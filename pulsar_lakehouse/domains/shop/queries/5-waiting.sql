-- Waiting orders by user, with what they wait for and since when, oldest first
SELECT user_id, reason, count(*) AS orders, min(waiting_since) AS since
FROM quarantine.waiting_orders
GROUP BY user_id, reason
ORDER BY since, orders DESC, user_id, reason
LIMIT 5
