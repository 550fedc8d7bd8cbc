"""Files that are downloaded once and shared by all clones."""
