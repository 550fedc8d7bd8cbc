-- Why invoices wait
SELECT reason, region_code, count(*) AS invoices
FROM quarantine.waiting_invoices
GROUP BY ALL
ORDER BY ALL
