"""PySpark's daemon with what the source needs loaded, so that the workers that it forks begin at once.

It is Spark's if `spark.python.daemon.module` says so. The Pulsar client is left to the workers: those forked with it
would all draw the same names for their consumers.
"""

import pyarrow as pa
import pyspark.worker  # noqa: F401
from pyspark.daemon import manager

import bronze.pulsar.source  # noqa: F401

if __name__ == "__main__":
    pa.array([])  # loads pandas, if there is one
    manager()
