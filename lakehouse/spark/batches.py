"""How a stream hands over its batches, and how a small one is planned."""

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from pyspark.sql import DataFrame, SparkSession

FEW = 5_000
"""Rows of a small batch: its queries are planned once, and state is cut down to what they look up before a join."""

ADAPTIVE = "spark.sql.adaptive.enabled"


def each_batch(handle: Callable[[DataFrame], None]) -> Callable[[DataFrame, int], None]:
    """A function for `foreachBatch` that frees what was made of a batch.

    Python's part of a frame is in a cycle, and holds the JVM's, with all its hash tables, until Python looks for
    cycles: too seldom, as it knows of small objects only. Six small batches had kept 1.2 GB.
    """

    def handle_and_free(batch: DataFrame, _: int) -> None:
        try:
            handle(batch)
        finally:
            gc.collect()

    return handle_and_free


@contextmanager
def planned_for(spark: SparkSession, rows: int) -> Iterator[None]:
    """Plan the queries of the block for so many rows, by a setting of the session that is put back at its end.

    Few rows are not planned anew after each stage, which takes a job for each.
    """
    before = spark.conf.get(ADAPTIVE)
    assert before is not None
    try:
        spark.conf.set(ADAPTIVE, before if rows > FEW else "false")
        yield
    finally:
        spark.conf.set(ADAPTIVE, before)
