"""How a Pulsar cluster is reached, asked and sent to."""
