"""PySpark's daemon with what a task of the source needs loaded, so that the workers that it forks begin at once.

It is Spark's if `spark.python.daemon.module` says so. The Pulsar client is left out, and the module that uses it:
workers forked with it would all draw the same names for their consumers. PySpark itself loads nothing before it forks,
which threads do not survive; of what is loaded here, on Linux, only pyarrow's allocator has one, and begins it anew.
"""

import gc
import os

import numpy as np
import pyarrow as pa
import pyspark.worker  # noqa: F401
from pyspark.daemon import manager

if __name__ == "__main__":
    pa.array([])  # loads pandas, if there is one
    os.register_at_fork(after_in_child=np.random.seed)  # or all would draw the same numbers
    gc.freeze()  # or each worker would look through all this after each task
    manager()
