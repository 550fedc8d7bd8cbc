"""Reads from the checkpoint of a stream how far it is, without Spark."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

import obstore
from obstore.store import ObjectStore

from lakehouse.settings import Settings, is_remote
from lakehouse.storage import folder


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
    """The batches that the stream has finished, oldest first. Spark keeps the last hundred."""
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
        offsets = bytes(obstore.get(checkpoint, f"offsets/{number}").bytes()).decode()
    except (FileNotFoundError, UnicodeDecodeError):
        offsets = ""
    return Batch(ended=ended[number], offsets=offsets)
