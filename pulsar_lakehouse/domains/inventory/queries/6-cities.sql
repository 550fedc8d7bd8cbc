-- The cities with the most revenue
SELECT city, pieces, revenue
FROM gold.revenue_by_city
ORDER BY revenue DESC, city
LIMIT 5
