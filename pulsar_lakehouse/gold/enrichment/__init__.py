"""Join facts with state, and keep facts in quarantine while they wait for state."""
