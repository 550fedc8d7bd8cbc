"""Writes before or after which a batch ends, as if the power had been cut. What is written side by side still is."""

from collections.abc import Callable
from typing import Any

from gold import enrich, placing
from silver import merge

Write = Callable[..., None]


def fail_before(_: Write) -> Write:
    def fail(*_: Any, **__: Any) -> None:
        raise RuntimeError("power cut")

    return fail


def fail_after(write: Write) -> Write:
    def write_and_fail(*args: Any, **kwargs: Any) -> None:
        write(*args, **kwargs)
        raise RuntimeError("power cut")

    return write_and_fail


SILVER = [(merge, name, fail_after) for name in ("quarantine_malformed", "_merge_history", "_merge_latest")]
PLACING = [
    *((placing, name, fail_before) for name in ("_begin_waiting", "_add_to_gold", "_correct_gold", "_end_waiting")),
    (placing, "_begin_waiting", fail_after),
]
FIRST_AND_LAST = [
    (enrich, "quarantine_malformed", fail_after),
    *((enrich, "write_duplicates", fail) for fail in (fail_before, fail_after)),
]
