"""The `lakehouse` command, and what it prints."""
