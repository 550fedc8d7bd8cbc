"""Handlers for the batches of streams, and how small batches are planned."""

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from pyspark.sql import DataFrame, SparkSession

FEW = 5_000
"""A batch of up to this many rows is small.

Its queries are planned once, and before a join, state is reduced to the keys that the rows look up.
"""

ADAPTIVE = "spark.sql.adaptive.enabled"


def each_batch(handle: Callable[[DataFrame], None]) -> Callable[[DataFrame, int], None]:
    """A function for `foreachBatch` that calls `handle`, and then frees the batch's frames.

    A frame's Python object is part of a reference cycle. It keeps the JVM's objects, such as hash tables, alive until
    Python collects cycles. Python rarely does, as it only sees small objects: six small batches once kept 1.2 GB.
    """

    def handle_and_free(batch: DataFrame, _: int) -> None:
        try:
            handle(batch)
        finally:
            gc.collect()

    return handle_and_free


@contextmanager
def planned_for(spark: SparkSession, rows: int) -> Iterator[None]:
    """Plan the queries of the block for so many rows. It changes a session setting, and restores it at the end.

    For few rows, adaptive execution is off: it plans again after each stage, and needs a job for each.
    """
    before = spark.conf.get(ADAPTIVE)
    assert before is not None
    try:
        spark.conf.set(ADAPTIVE, before if rows > FEW else "false")
        yield
    finally:
        spark.conf.set(ADAPTIVE, before)
