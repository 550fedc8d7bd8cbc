-- Messages by topic. The invoices that are in both are one
SELECT parse_filename(topic) AS topic, count(*) AS messages, count(DISTINCT key) AS keys
FROM (FROM bronze.invoices SELECT topic, key UNION ALL FROM bronze.payment_events SELECT topic, key)
GROUP BY ALL
ORDER BY topic
