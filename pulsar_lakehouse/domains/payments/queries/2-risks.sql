-- Banks by their risk, as the service has answered; it knows nothing of one
SELECT issuer_number, network, issuer.risk AS risk, count(*) AS invoices, count(payments) AS paid
FROM gold.enriched_invoices
GROUP BY ALL
ORDER BY risk DESC, issuer_number
