-- Invoices that were paid by two payments, the second one last of all
SELECT id, cents, [each.cents for each in payments] AS paid, payments[-1].paid_at - issued_at AS after
FROM gold.enriched_invoices
WHERE len(payments) = 2
ORDER BY after DESC, id
LIMIT 5
