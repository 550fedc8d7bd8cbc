"""Gold tables that a SQL file declares."""
