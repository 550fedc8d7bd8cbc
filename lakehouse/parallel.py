"""Calls that only wait for Spark, side by side."""

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

Result = TypeVar("Result")


def side_by_side(calls: Iterable[Callable[[], Result]], *, at_once: int | None = None) -> list[Result]:
    """What each call returns, in their order.

    If one fails, those that have begun still end, so that nothing writes after this. An interrupt does not wait.
    """
    pool = ThreadPoolExecutor(at_once)
    try:
        return list(pool.map(lambda call: call(), calls))
    except Exception:
        pool.shutdown(cancel_futures=True)
        raise
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
