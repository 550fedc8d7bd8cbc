"""The contracts of topics, and the code that decodes payloads into typed columns."""
