-- What was given back, by the network of the card. Refunds come whenever they come.
-- keys: network
-- refresh: incremental
SELECT i.network AS network, count(*) AS refunds, sum(r.cents) AS cents
FROM silver.refunds AS r
JOIN gold.enriched_invoices AS i ON i.id = r.invoice_id
WHERE r.deleted_at IS NULL
GROUP BY i.network
