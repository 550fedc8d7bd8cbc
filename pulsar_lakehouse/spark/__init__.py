"""The Spark session, and helpers for its streams, batches and errors."""
