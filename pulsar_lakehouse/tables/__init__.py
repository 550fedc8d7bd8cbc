"""Delta tables: create, read, write and lease them, and query them without Spark."""
