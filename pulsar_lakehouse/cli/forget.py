"""`lakehouse forget`: erase a person from all tables."""

import json
from pathlib import Path
from typing import Annotated

import typer

from pulsar_lakehouse.cli import report
from pulsar_lakehouse.cli.arguments import key_of
from pulsar_lakehouse.jobs.forget import Found, find, forget
from pulsar_lakehouse.jobs.steps import open_lake, require
from pulsar_lakehouse.pipeline.loading import pipeline_of
from pulsar_lakehouse.progress import spinner
from pulsar_lakehouse.settings import load_settings

COMMAND = "forget"
"""What others see as the holder of the leases, instead of the command line, which has the key."""


def forget_command(
    person: Annotated[str, typer.Argument(help="An entity and a key, such as users:123.")],
    approve: Annotated[bool, typer.Option("--approve", help="Erase, instead of only showing what would go.")] = False,
    now: Annotated[
        bool, typer.Option("--now", help="Also remove older versions at once. Default: maintenance does, after a week.")
    ] = False,
) -> None:
    """Erase a person, or anything else with a key: its messages, the facts that look it up, and all made from them.

    Without --approve, only show what would go. Writes a certificate. After a crash, run it again.
    """
    settings = load_settings()
    pipeline = pipeline_of(settings)
    entity, key = key_of({entity.name: entity for entity in pipeline.entities}, person)
    written = (*pipeline.written, *(table.name for table in pipeline.sql_tables), *pipeline.published_topics)
    leases = (*written, *(each.shadow for each in pipeline.enrichments))
    with open_lake(settings, writes=leases if approve else (), command=COMMAND, kind="maintenance") as lake:
        require(lake, pipeline.written, made_by="run")
        if not approve:
            with spinner("Searching"):
                found = find(lake, pipeline, entity, key)
            _show_found(found)
            if any(topic.rows and topic.bronze_table in found.tables for topic in pipeline.landed):
                report.say("Messages would go as a whole, with their rows of others")
            return
        certificates = forget(lake, pipeline, entity, key, now=now)
    for path in certificates:
        _show_certificate(path)
    if not certificates:
        report.say(f"{entity.name}: the tables hold nothing of this key")


def _show_found(found: Found) -> None:
    """Print the keys of a person, and how many rows each table would lose."""
    if not found.tables:
        report.say("The tables hold nothing of this key")
        return
    keys = (f"{entity}:{key}" for entity, of_entity in found.keys.items() for key in sorted(of_entity))
    report.say(f"Keys: {', '.join(keys)}")
    rows = ((name, f"{count:,}") for name, count in sorted(found.tables.items()))
    report.OUT.print(report.grid(("table", "rows that would go"), rows, numbers=True))
    if found.snapshots:
        dropped = ", ".join(found.snapshots)
        report.say(f"Snapshots that would be dropped, as a restore would bring the person back: {dropped}")
    report.say("Tables declared in SQL, topics and Postgres would follow. Nothing was erased: add --approve")


def _show_certificate(path: Path) -> None:
    """Print the certificate of an erasure, and where it is."""
    given = json.loads(path.read_text())
    older, compacted = given["older_versions"], given["compacted_topics"]
    recomputed = (*given["recomputed"], *(f"{name} in Postgres" for name in given["postgres"]))
    rows = [
        ("rows erased", "\n".join(f"{name}: {rows:,}" for name, rows in given["rows"].items())),
        *([("recomputed", "\n".join(recomputed))] if recomputed else []),
        *([("tombstones sent, and compaction requested", "\n".join(compacted))] if compacted else []),
        ("older versions", f"leave at {older['leave_at']}, by {older['by']}"),
        ("malformed messages that can be anybody's", f"{given['unreadable_messages']:,}"),
        *(("left to you", line) for line in given["beyond"]),
    ]
    title = f"Erasure {given['request']}, completed at {given['completed_at']}"
    report.OUT.print(report.grid(("what", "where"), rows, title=title))
    report.say(f"Certificate: {path}")
