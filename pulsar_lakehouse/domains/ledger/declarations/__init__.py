"""The topics of the ledger, and the tables that are made from them."""
