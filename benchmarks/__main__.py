"""Runs one benchmark: `.venv/bin/python -m benchmarks pipeline --orders 1000`, or with `--help`."""

import sys
from importlib import import_module

import typer

if __name__ == "__main__":
    name = sys.argv.pop(1)
    typer.run(import_module(f"benchmarks.{name}").main)
