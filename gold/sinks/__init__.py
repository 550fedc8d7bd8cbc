"""Where gold's rows go: to a keyed topic, or to a table in Postgres."""
