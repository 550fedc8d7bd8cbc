-- The categories with the most revenue
SELECT item.category AS category, count(*) AS orders, sum(price) AS revenue
FROM gold.enriched_orders
GROUP BY category
ORDER BY revenue DESC
LIMIT 5
