"""Runs calls in parallel that only wait for Spark."""

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

Result = TypeVar("Result")


def side_by_side(calls: Iterable[Callable[[], Result]], *, at_once: int | None = None) -> list[Result]:
    """Run the calls in threads, at most `at_once` at a time, and return their results in order.

    An interrupt does not wait for calls that are running.
    """
    pool = ThreadPoolExecutor(at_once)
    try:
        return list(pool.map(lambda call: call(), calls))
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
