"""Delta tables: how they are created, read, written, leased and asked without Spark."""
