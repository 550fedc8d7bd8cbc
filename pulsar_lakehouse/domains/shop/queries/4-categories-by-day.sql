-- Revenue by category and day, latest days first
SELECT order_date AS day, item.category AS category, count(*) AS orders, round(sum(price), 2) AS revenue
FROM gold.enriched_orders
GROUP BY order_date, item.category
ORDER BY day DESC, revenue DESC
LIMIT 5
