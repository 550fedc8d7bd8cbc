"""Inventory: a Postgres that takes orders, replicated by Debezium. Order lines are joined as of their time."""
