"""Reads from the checkpoint of a stream how far it is, and adds batches to it, without Spark."""

import json
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple
from uuid import uuid4

import obstore
from obstore.exceptions import BaseError
from obstore.store import ObjectStore

from pulsar_lakehouse.settings import Settings
from pulsar_lakehouse.storage import folder, put, time_precision

VERSION = "v1"
"""The version of the files of a checkpoint."""
ENDED = VERSION, json.dumps({"nextBatchWatermarkMs": 0})
"""The lines of the file in `commits` of a batch that has ended."""
UNREAD = "-"
"""Stands for the offset of a source of which nothing was read."""
RETAINED = 100
"""How many batches Spark keeps in a checkpoint, too (`spark.sql.streaming.minBatchesToRetain`)."""


@dataclass(frozen=True, kw_only=True)
class Batch:
    ended: datetime
    offsets: str
    """The lines of its file in `offsets`, which say what it has read; empty if the file is lost or not UTF-8."""


def last_batch(settings: Settings, stream: str) -> Batch | None:
    """The last batch that the stream has finished; None if there is none."""
    return next(_newest_first(settings, stream), None)


def batches(settings: Settings, stream: str) -> list[Batch]:
    """The batches that the stream has finished, oldest first. The last hundred are kept."""
    return [*_newest_first(settings, stream)][::-1]


def begun_at(settings: Settings, stream: str) -> datetime | None:
    """When the checkpoint of the stream was made; None if there is none."""
    try:
        made = obstore.head(_checkpoint(settings, stream), "metadata")
    except FileNotFoundError:
        return None
    return made["last_modified"] + time_precision(settings.checkpoint_path(stream))


def _newest_first(settings: Settings, stream: str) -> Iterator[Batch]:
    checkpoint, precision = _checkpoint(settings, stream), time_precision(settings.checkpoint_path(stream))
    for number, written in sorted(_files(checkpoint, "commits").items(), reverse=True):
        try:
            offsets = _read(checkpoint, f"offsets/{number}")
        except (FileNotFoundError, UnicodeDecodeError):
            offsets = ""
        yield Batch(ended=written + precision, offsets=offsets)


def _checkpoint(settings: Settings, stream: str) -> ObjectStore:
    return folder(settings, settings.checkpoint_path(stream))


class Stopped(NamedTuple):
    """Where a stream with a single source has stopped, between two batches."""

    stream: str
    """Its id, under which it appends to a table."""
    number: int
    """Of its last batch; -1 if there is none."""
    offset: str
    """Where that batch ended, as JSON of the source, or where the first one begins."""


def begin(settings: Settings, stream: str, offset: str) -> Stopped:
    """Create the checkpoint of a stream that begins at an offset. There must be none."""
    return Stopped(_begun(settings, stream), -1, offset)


def _begun(settings: Settings, stream: str) -> str:
    """The id of a stream whose checkpoint this creates."""
    id = str(uuid4())
    _create(settings, stream, "metadata", json.dumps({"id": id}))
    return id


def begin_behind(settings: Settings, stream: str, offsets: Sequence[str], context: str) -> None:
    """Create the checkpoint of a stream which goes on behind these offsets of its sources, as JSON. There must be none.

    One whose offset is UNREAD is read from its beginning. `context` is as of `batch_context`.
    """
    _begun(settings, stream)
    # In this order, as without them the stream would do the whole batch at once. It begins again without offsets.
    _create(settings, stream, "commits/0", *ENDED)
    _create(settings, stream, "offsets/0", VERSION, context, *offsets)


def stopped_after(settings: Settings, stream: str) -> Stopped | None:
    """Where the stream has stopped; None if it has no batch yet, or one that has not ended, or a torn checkpoint."""
    checkpoint = _checkpoint(settings, stream)
    with suppress(FileNotFoundError, ValueError, KeyError):
        number = max(_files(checkpoint, "commits"))
        if max(_files(checkpoint, "offsets")) != number:
            return None
        version, _, offset = _read(checkpoint, f"offsets/{number}").splitlines()
        if version == VERSION and json.loads(offset):
            return Stopped(str(json.loads(_read(checkpoint, "metadata"))["id"]), number, offset)
    return None


def begun_batch(settings: Settings, stream: str) -> tuple[str, str] | None:
    """Where the batch that a stream with a single source has begun, but not ended, begins and ends, as JSON.

    None if there is none. Where the first one begins is not told: `{}`.
    """
    checkpoint = _checkpoint(settings, stream)
    with suppress(FileNotFoundError, ValueError, IndexError):
        files = _files(checkpoint, "offsets")
        if (number := max(files)) not in _files(checkpoint, "commits"):
            before = _read(checkpoint, f"offsets/{number - 1}").splitlines()[-1] if number - 1 in files else "{}"
            return before, _read(checkpoint, f"offsets/{number}").splitlines()[-1]
    return None


@contextmanager
def next_batch(
    settings: Settings, stream: str, stopped: Stopped, offset: str, context: str
) -> Iterator[tuple[str, int]]:
    """The block appends what the stream's next batch reads, up to `offset`, to its table, with this id and number.

    `context` is as of `batch_context`. Afterwards, the stream goes on behind the batch. If the block fails, or is
    killed, the stream does the batch again: Spark plans it up to the same offset, and leaves it out if the table has
    its id and number. Spark itself works in the same order: offsets, rows, commit.
    """
    number = stopped.number + 1
    _create(settings, stream, f"offsets/{number}", VERSION, context, offset)
    yield stopped.stream, number
    _create(settings, stream, f"commits/{number}", *ENDED)
    with suppress(BaseError, OSError):  # what is left is removed after a later batch
        _remove_batches(_checkpoint(settings, stream), number - RETAINED)


def _remove_batches(checkpoint: ObjectStore, last: int) -> None:
    """Remove the files of the batches up to the last one of these, with Spark's checksums of them."""
    for log in ("offsets", "commits"):
        for file in obstore.list_with_delimiter(checkpoint, log)["objects"]:
            named = re.fullmatch(r"\.?(\d+)(\.crc)?", file["path"].rpartition("/")[2])
            if named and int(named[1]) <= last:
                obstore.delete(checkpoint, file["path"])


def _files(checkpoint: ObjectStore, log: str) -> dict[int, datetime]:
    """When the file of each batch was written, by the batch's number."""
    files = obstore.list_with_delimiter(checkpoint, log)["objects"]
    named = {file["path"].rpartition("/")[2]: file["last_modified"] for file in files}
    return {int(name): written for name, written in named.items() if name.isdigit()}


def _create(settings: Settings, stream: str, file: str, *lines: str) -> None:
    put(settings, settings.checkpoint_path(stream), file, "\n".join(lines).encode(), replace=False)


def _read(checkpoint: ObjectStore, file: str) -> str:
    return bytes(obstore.get(checkpoint, file).bytes()).decode()
