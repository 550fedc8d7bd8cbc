-- What a truncation did: the promotions before it end then, and those that came later are there
SELECT h.sku, h.discount, strftime(h.valid_from, '%H:%M:%S.%g') AS valid_from,
    strftime(h.valid_until, '%H:%M:%S.%g') AS valid_until, s.deleted_at IS NULL AS is_there
FROM silver.promotions_history AS h
JOIN silver.promotions AS s USING (sku)
WHERE h.discount IS NOT NULL
ORDER BY h.valid_from, h.sku
