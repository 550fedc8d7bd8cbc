"""Writes after which tests let a batch crash, like a power cut."""

from collections.abc import Callable
from types import ModuleType
from typing import Any

from pulsar_lakehouse.gold.enrichment import enrich, writes
from pulsar_lakehouse.silver import merge

Write = tuple[ModuleType, str]

SILVER: list[Write] = [(merge, name) for name in ("quarantine_malformed", "_merge_history", "_merge_latest")]
PLACING: list[Write] = [(writes, name) for name in ("_begin_waiting", "_add_to_gold", "_correct_gold", "_end_waiting")]
FIRST_AND_LAST: list[Write] = [(enrich, name) for name in ("quarantine_malformed", "write_duplicates")]


def fail_after(write: Callable[..., object]) -> Callable[..., None]:
    def write_and_fail(*args: Any, **kwargs: Any) -> None:
        write(*args, **kwargs)
        raise RuntimeError("power cut")

    return write_and_fail
