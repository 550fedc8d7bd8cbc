"""Java, the classes that it has loaded, and code of ours that is compiled for it."""
