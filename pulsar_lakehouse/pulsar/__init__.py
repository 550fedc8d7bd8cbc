"""Connects to a Pulsar cluster, administers its topics and sends messages."""
