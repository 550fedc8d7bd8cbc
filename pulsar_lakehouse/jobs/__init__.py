"""The jobs behind the commands: they read, transform and write tables."""
