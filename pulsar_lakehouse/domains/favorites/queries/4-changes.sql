-- The favorites that changed last
SELECT user_id, name, color, color_since, cheese, cheese_since
FROM gold.user_favorite_color_and_cheese
ORDER BY greatest(color_since, cheese_since) DESC NULLS LAST, user_id
LIMIT 5
