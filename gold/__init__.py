"""Facts joined with state, tables made of them by SQL, and where their rows go."""
