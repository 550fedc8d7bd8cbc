"""Writes to tables after which tests let a batch crash, like a power cut."""

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import pytest

from pulsar_lakehouse.tables.lake import LakeTable


class Write(NamedTuple):
    how: str
    """The method of a table."""
    table: str
    """Matches the names of the tables."""


MALFORMED = Write("append", r"quarantine\.malformed")
MERGE_HISTORY = Write("upsert", r"silver\.\w+_history")
MERGE_LATEST = Write("upsert", r"silver\.(?!\w+_history$)")
BEGIN_WAITING = Write("append", r"quarantine\.waiting_")
ADD_TO_GOLD = Write("append", r"gold\.enriched_")
CORRECT_GOLD = Write("merge", r"gold\.enriched_")
END_WAITING = Write("merge", r"quarantine\.waiting_")
DUPLICATES = Write("append", r"quarantine\.duplicate_")
DISCARD = Write("append", r"quarantine\.discarded_")

SILVER = [MALFORMED, MERGE_HISTORY, MERGE_LATEST]
PLACING = [BEGIN_WAITING, ADD_TO_GOLD, CORRECT_GOLD, END_WAITING]


@contextmanager
def crash_after(write: Write) -> Iterator[None]:
    """In the block, the first such write is done, and then fails."""
    method = getattr(LakeTable, write.how)

    def write_and_fail(table: LakeTable, *args: Any, **kwargs: Any) -> None:
        method(table, *args, **kwargs)
        if re.match(write.table, table.name):
            raise RuntimeError("power cut")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(LakeTable, write.how, write_and_fail)
        yield


def fail_after(step: Callable[..., object]) -> Callable[..., None]:
    def do_and_fail(*args: Any, **kwargs: Any) -> None:
        step(*args, **kwargs)
        raise RuntimeError("power cut")

    return do_and_fail
