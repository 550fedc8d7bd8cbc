"""What the DAGs are made of: tasks, a trigger, notes of runs, and the plugin."""
