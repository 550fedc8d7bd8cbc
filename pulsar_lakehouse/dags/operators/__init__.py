"""The parts of the DAGs: tasks, a trigger, notes of runs, and the plugin."""
