"""Calls that only wait for Spark, side by side."""

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from pyspark import inheritable_thread_target
from pyspark.sql import SparkSession

Result = TypeVar("Result")


def side_by_side(
    spark: SparkSession, calls: Iterable[Callable[[], Result]], *, at_once: int | None = None
) -> list[Result]:
    """What each call returns, in their order. Their Spark jobs are those of the caller's stream, and end with it.

    If one fails, those that have begun still end, so that nothing is written after this. An interrupt does not wait.
    """
    pool = ThreadPoolExecutor(at_once)
    try:
        begun = [pool.submit(inheritable_thread_target(spark)(call)) for call in calls]
        return [each.result() for each in begun]
    except Exception:
        pool.shutdown(cancel_futures=True)
        raise
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
