"""Frees what the batches of streams leave in memory."""

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from pyspark.sql import DataFrame


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
def frozen_modules() -> Iterator[None]:
    """In the block, to collect cycles takes no time for what is there before it, such as all modules: 0.1 seconds."""
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()  # else libraries complain at the end of objects that nobody has freed
