-- How many users have told their favorites
SELECT color IS NOT NULL AS has_color, cheese IS NOT NULL AS has_cheese, count(*) AS users
FROM gold.user_favorite_color_and_cheese
GROUP BY ALL
ORDER BY users DESC, has_color, has_cheese
