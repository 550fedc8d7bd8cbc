"""PySpark's daemon, with the modules that a task of the source needs loaded, so that forked workers start quickly.

Set `spark.python.daemon.module` to this module to use it. It does not load the Pulsar client, or the module that uses
it: workers forked after that would all draw the same names for their consumers. PySpark itself loads nothing before it
forks, because threads do not survive a fork. Of the modules loaded here, only pyarrow's allocator has a thread on
Linux, and it starts that thread again.
"""

import gc
import os

import numpy as np
import pyarrow as pa
import pyspark.worker  # noqa: F401
from pyspark.daemon import manager


def run() -> None:
    pa.array([])  # loads pandas, if it is installed
    os.register_at_fork(after_in_child=np.random.seed)  # otherwise all workers would draw the same numbers
    gc.freeze()  # otherwise each worker would scan all of this after each task
    manager()


if __name__ == "__main__":
    run()
