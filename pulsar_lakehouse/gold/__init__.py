"""Facts joined with state, tables computed from them by SQL, and the sinks that publish both."""
