-- A product whose key was updated: the old one is deleted when the new one begins
SELECT sku, name, price, stock, strftime(valid_from, '%H:%M:%S.%g') AS valid_from,
    deleted_at IS NOT NULL AS is_deleted
FROM silver.products_history
WHERE sku LIKE 'L-%01' AND lsn IS NOT NULL
ORDER BY lsn DESC
LIMIT 4
