"""The SQL endpoint."""
