-- What invoices of a day ask for, and what was paid within an hour. A late payment or correction changes its day.
-- keys: region, day
-- refresh: incremental
SELECT
    region.name AS region,
    day,
    count(*) AS invoices,
    count_if(payments IS NULL) AS unpaid,
    sum(cents) AS cents,
    sum(coalesce(aggregate(payments, 0L, (paid, each) -> paid + each.cents), 0L)) AS paid_cents
FROM gold.enriched_invoices
GROUP BY region.name, day
