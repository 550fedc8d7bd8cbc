"""Reads from the checkpoint of a stream how far it is, without Spark."""

from dataclasses import dataclass
from datetime import datetime

import obstore

from lakehouse.settings import Settings
from lakehouse.storage import folder


@dataclass(frozen=True, kw_only=True)
class Batch:
    ended: datetime
    offsets: str
    """The lines of its file in `offsets`, which say what it has read; empty if the file is lost or not UTF-8."""


def last_batch(settings: Settings, stream: str) -> Batch | None:
    """The last batch that the stream has finished; None if there is none."""
    checkpoint = folder(settings, settings.checkpoint_path(stream))
    commits = obstore.list_with_delimiter(checkpoint, "commits")["objects"]
    ended = {int(name): file for file in commits if (name := file["path"].rpartition("/")[2]).isdigit()}
    if not ended:
        return None
    last = max(ended)
    try:
        offsets = bytes(obstore.get(checkpoint, f"offsets/{last}").bytes()).decode()
    except (FileNotFoundError, UnicodeDecodeError):
        offsets = ""
    return Batch(ended=ended[last]["last_modified"], offsets=offsets)
