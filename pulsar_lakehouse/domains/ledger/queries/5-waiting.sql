-- Why transactions wait
SELECT reason, count(*) AS transactions, sum(amount) AS amount
FROM quarantine.waiting_transactions
GROUP BY reason
ORDER BY transactions DESC, reason
