"""Publish gold tables to a keyed topic or to a table in Postgres."""
