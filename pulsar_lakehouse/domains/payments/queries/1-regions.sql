-- Regions by what was paid within an hour, and what was not
SELECT region, sum(invoices) AS invoices, sum(unpaid) AS unpaid, sum(cents) / 100 AS asked, sum(paid_cents) / 100 AS paid
FROM gold.revenue_by_region_and_day
GROUP BY region
ORDER BY paid DESC
