"""Reading for people: SQL over the tables, the history of rows, and the status of tables."""
