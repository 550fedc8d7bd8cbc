"""The Spark session, and how its streams, batches and errors are handled."""
