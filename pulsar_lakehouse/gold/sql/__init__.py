"""Gold tables that are declared by SQL files."""
