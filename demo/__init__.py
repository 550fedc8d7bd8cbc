"""A synthetic workload, and questions to ask of what the pipeline makes of it."""
