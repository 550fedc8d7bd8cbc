"""Calls that only wait for Spark, side by side."""

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

Result = TypeVar("Result")


def side_by_side(calls: Iterable[Callable[[], Result]], *, at_once: int | None = None) -> list[Result]:
    """What each call returns, in their order. An interrupt does not wait for those that have begun."""
    pool = ThreadPoolExecutor(at_once)
    try:
        return list(pool.map(lambda call: call(), calls))
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
