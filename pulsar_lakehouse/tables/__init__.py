"""Delta tables: declared, created, read and written."""
