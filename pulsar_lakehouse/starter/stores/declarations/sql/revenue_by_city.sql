-- Sales and revenue of each city.
-- keys: city
-- refresh: incremental
SELECT
    coalesce(store.city, 'unknown') AS city,
    count(*) AS sales,
    sum(price) AS revenue
FROM gold.enriched_sales
GROUP BY coalesce(store.city, 'unknown')
