"""Servers on this machine: the embedded broker, and helpers to start, find and stop processes."""
