"""Latest state: one row a key, merged from a changelog topic by a total order."""
