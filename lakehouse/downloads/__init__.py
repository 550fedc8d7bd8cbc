"""What is downloaded once, and kept for all clones."""
