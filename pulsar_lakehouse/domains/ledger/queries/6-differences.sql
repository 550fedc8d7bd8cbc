-- Accounts whose balance is not what the bank reported with their last transaction: some transactions still wait
SELECT b.account_id, b.balance, t.balance AS reported, b.balance - t.balance AS difference
FROM gold.balance_by_account AS b
JOIN gold.enriched_transactions AS t ON t.account_id = b.account_id AND t.made_at = b.last_transaction
WHERE b.balance <> t.balance
ORDER BY abs(b.balance - t.balance) DESC, b.account_id
LIMIT 5
