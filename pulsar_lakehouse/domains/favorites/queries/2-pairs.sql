-- Which cheese goes with which color
SELECT color, cheese, count(*) AS users
FROM gold.user_favorite_color_and_cheese
WHERE color IS NOT NULL AND cheese IS NOT NULL
GROUP BY color, cheese
ORDER BY users DESC, color, cheese
LIMIT 5
