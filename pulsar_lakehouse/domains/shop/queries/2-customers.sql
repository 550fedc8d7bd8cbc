-- The best customers, with the user data that their orders were joined with
SELECT user.id AS id, user.first_name || ' ' || user.last_name AS name, user.email_address AS email,
       count(*) AS orders, sum(price) AS spent
FROM gold.enriched_orders
GROUP BY ALL
ORDER BY spent DESC, id
LIMIT 5
