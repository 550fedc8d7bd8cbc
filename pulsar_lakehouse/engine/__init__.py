"""The engine keeps a JVM of Spark warm, and lends it to one command at a time."""
