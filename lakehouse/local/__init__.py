"""What runs on this machine: the embedded broker, and how servers are started, found and ended."""
