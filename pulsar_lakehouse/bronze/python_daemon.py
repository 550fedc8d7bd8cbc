"""PySpark's daemon, with what reads and decodes messages loaded, so that forked workers start quickly."""

import pulsar_lakehouse.contracts.batches  # noqa: F401
from pulsar_lakehouse.bronze.pulsar.daemon import run

if __name__ == "__main__":
    run()
