-- What is malformed, and why
SELECT topic, reason, count(*) AS messages
FROM quarantine.malformed
GROUP BY ALL
ORDER BY messages DESC, topic, reason
LIMIT 8
