"""Handlers for the batches of streams, and how small batches are planned."""

import gc
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from pyspark.sql import DataFrame, SparkSession

FEW = 50_000
"""A batch of up to this many rows is small.

Its queries are planned once, what several of them read is cached, and before a join, state is reduced to the keys that
the rows look up.
"""

HANDFUL = 1_000
"""Up to this many rows, to compile code for them takes longer than to do without."""

ADAPTIVE = "spark.sql.adaptive.enabled"
INTERPRETED = {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}


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


class Succession:
    """Knows which batches of a stream have only new messages: such as landed after this process had placed all others.

    Other batches can have been placed before: by a process that was killed, or before their checkpoint was lost or
    became an older one.
    """

    def __init__(self) -> None:
        self._finished: int | None = None
        self._is_caught_up = False
        self.is_new = False
        """Whether the batch that is being processed has only new messages."""

    @contextmanager
    def batch(self, number: int) -> Iterator[None]:
        """The block processes a batch."""
        if self._finished is None or number != self._finished + 1:
            self.doubt()
        self._finished, self.is_new = None, self._is_caught_up
        yield
        self._finished = number

    def doubt(self) -> None:
        """No message is known to be new until the stream has caught up again."""
        self._is_caught_up = self.is_new = False

    def caught_up(self) -> None:
        """The stream has ended well, and everything that had landed is placed."""
        self._is_caught_up = True


@contextmanager
def planned_for(spark: SparkSession, rows: int) -> Iterator[None]:
    """Plan the queries of the block for so many rows. It changes session settings, and restores them at the end.

    For few rows, adaptive execution is off: it plans again after each stage, and needs a job for each.
    """
    with session_settings(spark, {ADAPTIVE: "false"} if rows <= FEW else {}):
        yield


@contextmanager
def interpreted_for(spark: SparkSession, rows: int) -> Iterator[None]:
    """Like `planned_for`, for queries that read nothing but these rows: for a handful, no code is generated either."""
    with planned_for(spark, rows), session_settings(spark, INTERPRETED if rows <= HANDFUL else {}):
        yield


@contextmanager
def session_settings(spark: SparkSession, settings: Mapping[str, str]) -> Iterator[None]:
    """Change settings of the session for the block, and restore them at the end."""
    before = [(name, spark.conf.get(name, None)) for name in settings]
    try:
        for name, value in settings.items():
            spark.conf.set(name, value)
        yield
    finally:
        for name, held in before:
            spark.conf.unset(name) if held is None else spark.conf.set(name, held)
