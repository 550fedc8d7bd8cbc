"""What topics promise to carry, and how payloads become typed columns."""
