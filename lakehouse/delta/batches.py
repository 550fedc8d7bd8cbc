"""Reads from the checkpoint of a stream how far it is, and adds batches to it, without Spark."""

import json
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import NamedTuple

import obstore
from obstore.store import ObjectStore

from lakehouse.settings import Settings, is_remote
from lakehouse.storage import folder

RETAINED = 100
"""How many batches Spark keeps in a checkpoint, too (`spark.sql.streaming.minBatchesToRetain`)."""


@dataclass(frozen=True, kw_only=True)
class Batch:
    ended: datetime
    offsets: str
    """The lines of its file in `offsets`, which say what it has read; empty if the file is lost or not UTF-8."""


def last_batch(settings: Settings, stream: str) -> Batch | None:
    """The last batch that the stream has finished; None if there is none."""
    checkpoint = folder(settings, settings.checkpoint_path(stream))
    ended = _ended(settings, stream)
    return _batch(checkpoint, max(ended), ended) if ended else None


def batches(settings: Settings, stream: str) -> list[Batch]:
    """The batches that the stream has finished, oldest first. The last hundred are kept."""
    checkpoint = folder(settings, settings.checkpoint_path(stream))
    ended = _ended(settings, stream)
    return [_batch(checkpoint, number, ended) for number in sorted(ended)]


def begun_at(settings: Settings, stream: str) -> datetime | None:
    """When the checkpoint of the stream was made; None if there is none."""
    try:
        made = obstore.head(folder(settings, settings.checkpoint_path(stream)), "metadata")
    except FileNotFoundError:
        return None
    return made["last_modified"] + _precision(settings, stream)


def _precision(settings: Settings, stream: str) -> timedelta:
    """What to add to the time of a file: a store may know only the second in which it was written."""
    return timedelta(milliseconds=999 if is_remote(settings.checkpoint_path(stream)) else 0)


def _ended(settings: Settings, stream: str) -> dict[int, datetime]:
    """When each finished batch ended, by its number."""
    commits = obstore.list_with_delimiter(folder(settings, settings.checkpoint_path(stream)), "commits")["objects"]
    named = {file["path"].rpartition("/")[2]: file["last_modified"] for file in commits}
    precision = _precision(settings, stream)
    return {int(name): ended + precision for name, ended in named.items() if name.isdigit()}


def _batch(checkpoint: ObjectStore, number: int, ended: Mapping[int, datetime]) -> Batch:
    try:
        offsets = _read(checkpoint, f"offsets/{number}")
    except (FileNotFoundError, UnicodeDecodeError):
        offsets = ""
    return Batch(ended=ended[number], offsets=offsets)


class Stopped(NamedTuple):
    """Where a stream with a single source has stopped, between two batches."""

    stream: str
    """Its id, under which it appends to a table."""
    number: int
    """Of its last batch."""
    offset: str
    """Where that batch ended, as JSON of the source."""


def stopped_after(settings: Settings, stream: str) -> Stopped | None:
    """Where the stream has stopped; None if it has no batch yet, or one that has not ended, or a torn checkpoint."""
    checkpoint = folder(settings, settings.checkpoint_path(stream))
    with suppress(FileNotFoundError, ValueError, KeyError):
        number = max(_numbers(checkpoint, "commits"))
        if max(_numbers(checkpoint, "offsets")) != number:
            return None
        version, _, offset = _read(checkpoint, f"offsets/{number}").splitlines()
        if version == "v1" and json.loads(offset):
            return Stopped(str(json.loads(_read(checkpoint, "metadata"))["id"]), number, offset)
    return None


@contextmanager
def next_batch(settings: Settings, stream: str, stopped: Stopped, offset: str) -> Iterator[tuple[str, int]]:
    """The block appends what the stream's next batch reads, up to `offset`, to its table, with this id and number.

    Afterwards, the stream goes on behind it. If the block fails, or is killed, the stream does the batch again: Spark
    plans it up to the same offset, and leaves it out if the table has its id and number. It does all of this in the
    same order: offsets, rows, commit.
    """
    checkpoint, number = folder(settings, settings.checkpoint_path(stream)), stopped.number + 1
    version, context, _ = _read(checkpoint, f"offsets/{stopped.number}").splitlines()
    now = json.dumps(json.loads(context) | {"batchTimestampMs": int(time.time() * 1000)})
    obstore.put(checkpoint, f"offsets/{number}", "\n".join([version, now, offset]).encode())
    yield stopped.stream, number
    obstore.put(checkpoint, f"commits/{number}", _read(checkpoint, f"commits/{stopped.number}").encode())
    outdated = [
        f"{log}/{name}"
        for log in ("offsets", "commits")
        for old in _numbers(checkpoint, log)
        if old <= number - RETAINED
        for name in (old, f".{old}.crc")
    ]
    with suppress(FileNotFoundError):
        obstore.delete(checkpoint, outdated)


def _numbers(checkpoint: ObjectStore, log: str) -> list[int]:
    files = obstore.list_with_delimiter(checkpoint, log)["objects"]
    names = (file["path"].rpartition("/")[2] for file in files)
    return [int(name) for name in names if name.isdigit()]


def _read(checkpoint: ObjectStore, file: str) -> str:
    return bytes(obstore.get(checkpoint, file).bytes()).decode()
