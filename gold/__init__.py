"""Facts joined with the latest state, and the quarantine of those that wait for it."""
