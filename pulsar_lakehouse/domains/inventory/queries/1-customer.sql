-- A customer who moves: updates leave the long notes out, as they did not change, and silver keeps them
SELECT id, city, length(notes) AS length_of_notes, list_contains(given, 'notes') AS notes_were_sent,
    strftime(valid_from, '%H:%M:%S.%g') AS valid_from, strftime(valid_until, '%H:%M:%S.%g') AS valid_until
FROM silver.customers_history
WHERE id = (
    SELECT id FROM silver.customers_history
    WHERE NOT list_contains(given, 'notes') AND deleted_at IS NULL
    GROUP BY id ORDER BY count(*) DESC, id LIMIT 1
)
ORDER BY lsn
