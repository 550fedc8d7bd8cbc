"""The jobs behind the commands: they read, transform and write tables, in a shell or under spark-submit."""
