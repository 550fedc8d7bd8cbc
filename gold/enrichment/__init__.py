"""Facts joined with state, and the quarantine of those that wait for it."""
