-- The favorite color and cheese of each user, as far as known, and the messages that they come from.
-- keys: user_id
-- refresh: incremental
-- publish: topic user_favorite_color_and_cheese
SELECT
    u.user_id AS user_id,
    u.name AS name,
    c.color AS color,
    c.event_time AS color_since,
    c.properties['source'] AS color_source,
    c.topic AS color_topic,
    c.position AS color_position,
    f.cheese AS cheese,
    f.event_time AS cheese_since,
    f.properties['source'] AS cheese_source,
    f.topic AS cheese_topic,
    f.position AS cheese_position
FROM silver.account_users AS u
LEFT JOIN silver.favorite_colors AS c ON c.user_id = u.user_id AND c.deleted_at IS NULL
LEFT JOIN silver.favorite_cheeses AS f ON f.user_id = u.user_id AND f.deleted_at IS NULL
WHERE u.deleted_at IS NULL
