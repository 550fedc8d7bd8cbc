"""Latest state: one row per key, merged from a changelog topic by a total order of messages."""
