"""A synthetic workload, and queries on the tables that the pipeline makes from it."""
