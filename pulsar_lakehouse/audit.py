"""The log of who did what, and when: lines of JSON in `<home>/audit`, which are only ever added.

A line is written before what it tells is done. What came of that, the tables say. `serve.scala` adds lines, too.
"""

import getpass
import json
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

from pulsar_lakehouse.access import MASK
from pulsar_lakehouse.errors import LakehouseError
from pulsar_lakehouse.settings import Settings

NAME = "audit.jsonl"
"""The file that lines are added to. Others in the folder, such as those that were rotated, are read, too."""


@dataclass(frozen=True, kw_only=True)
class Entry:
    at: str
    """In UTC, as ISO 8601."""
    who: str
    did: str
    """A command without `lakehouse`, a view of the page, or SQL of the endpoint."""
    unmasked: bool = False
    """Whether personal data could be seen."""


def folder(settings: Settings) -> Path:
    return settings.home / "audit"


def note(settings: Settings, did: str, *, who: str = "", unmasked: bool = False) -> None:
    """Add a line, by default of who runs this process. Raises LakehouseError if it can't be written."""
    now = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    line = json.dumps(asdict(Entry(at=now, who=who or getpass.getuser(), did=did, unmasked=unmasked)))
    try:
        folder(settings).mkdir(parents=True, exist_ok=True)
        with (folder(settings) / NAME).open("a") as file:
            file.write(f"{line}\n")
    except OSError as error:
        raise LakehouseError(
            f"{folder(settings) / NAME}: {error.strerror}: nothing is done without a line in it"
        ) from error


def command_line(arguments: Sequence[str] | None = None) -> str:
    """The command that this process runs. The key of a person who is forgotten must not stay here."""
    given = sys.argv[1:] if arguments is None else arguments
    if given[:1] == ["forget"]:
        given = [re.sub(r"(?s)(?<=:).*", MASK, each) for each in given]
    return " ".join(given)


def entries(settings: Settings) -> Iterator[Entry]:
    """All lines, oldest first within each file; without those that a power cut has torn."""
    for file in sorted(folder(settings).glob("*.jsonl*"), key=lambda each: each.stat().st_mtime):
        for line in file.read_text("utf-8", errors="replace").split("\n"):
            try:
                yield Entry(**json.loads(line))
            except (ValueError, TypeError):
                continue
