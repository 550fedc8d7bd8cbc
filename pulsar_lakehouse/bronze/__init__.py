"""The Pulsar data source for Spark, and the append-only tables of raw messages."""
