-- The districts with the most turnover, each transaction in the district that its account was in at that time
SELECT account.district_id AS district, count(*) AS transactions, sum(amount) AS turnover
FROM gold.enriched_transactions
GROUP BY district
ORDER BY turnover DESC, district
LIMIT 5
