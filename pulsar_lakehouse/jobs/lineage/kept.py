"""The events of the last runs of each step, kept in `<home>/lineage`: a file for each step, with an event on each line.

Only the process that holds the lease of the step's table writes the file.
"""

import json
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from pulsar_lakehouse.settings import Settings

MOST_BYTES = 2**20
"""A file of this size becomes the older one of its step, and replaces the one before it."""


@dataclass(frozen=True, kw_only=True)
class LastRun:
    """How a step's last run ended, or that it has only started."""

    state: str
    at: datetime
    read: int | None = None
    """Rows that it read: messages, or changes of tables."""
    written: Mapping[str, int]
    """Rows that it wrote, by table."""
    failure: str = ""


def keep_event(settings: Settings, step: str, event: str) -> None:
    """Add an event, which is JSON. Raises OSError if that is not possible."""
    now, older = _files(settings, step)
    now.parent.mkdir(parents=True, exist_ok=True)
    if now.exists() and now.stat().st_size > MOST_BYTES:
        now.replace(older)
    with now.open("a") as file:
        file.write(f"{event}\n")


def last_run(settings: Settings, step: str) -> LastRun | None:
    """The last run of a step that is still known."""
    for event in _newest_first(settings, step):
        counts = [each["inputFacets"]["inputStatistics"] for each in event["inputs"] if each.get("inputFacets")]
        return LastRun(
            state=event["eventType"],
            at=datetime.fromisoformat(event["eventTime"]),
            read=counts[0]["rowCount"] if counts else None,
            written={
                table["name"]: output["outputFacets"]["outputStatistics"]["rowCount"]
                for output in event["outputs"]
                if output.get("outputFacets", {}).get("outputStatistics")
                for table in output["facets"]["symlinks"]["identifiers"]
            },
            failure=event["run"]["facets"].get("errorMessage", {}).get("message", ""),
        )
    return None


def _newest_first(settings: Settings, step: str) -> Iterator[Any]:
    for file in _files(settings, step):
        for line in reversed(file.read_text().splitlines() if file.exists() else []):
            with suppress(ValueError):  # torn by a power cut
                yield json.loads(line)


def _files(settings: Settings, step: str) -> tuple[Path, Path]:
    folder = settings.home / "lineage"
    return folder / f"{step}.jsonl", folder / f"{step}.1.jsonl"
