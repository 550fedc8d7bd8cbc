-- A product whose key was updated: the old one is deleted when the new one begins
SELECT sku, name, price, stock, strftime(valid_from, '%H:%M:%S.%g') AS valid_from,
    deleted_at IS NOT NULL AS is_deleted
FROM silver.products_history
WHERE sku IN ('L-101', 'L-901')
ORDER BY lsn DESC NULLS LAST
LIMIT 3
