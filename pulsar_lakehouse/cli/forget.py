"""`lakehouse forget`: erase a person from all tables."""

import json
from typing import Annotated

import typer

from pulsar_lakehouse.cli import report
from pulsar_lakehouse.cli.backfill import right_key
from pulsar_lakehouse.errors import ConfigurationError
from pulsar_lakehouse.jobs.forget import find, forget
from pulsar_lakehouse.jobs.steps import open_lake, require
from pulsar_lakehouse.pipeline.declared import Pipeline
from pulsar_lakehouse.pipeline.loading import pipeline_of
from pulsar_lakehouse.progress import spinner
from pulsar_lakehouse.settings import load_settings
from pulsar_lakehouse.silver.entity import Entity

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
    entity, key = _parse(pipeline, person)
    written = (*pipeline.written, *(table.name for table in pipeline.sql_tables), *pipeline.published_topics)
    leases = (*written, *(each.shadow for each in pipeline.enrichments))
    with open_lake(settings, writes=leases if approve else (), command=COMMAND, kind="maintenance") as lake:
        require(lake, pipeline.written, made_by="run")
        if not approve:
            with spinner("Searching"):
                report.person(find(lake, pipeline, entity, key))
            return
        certificates = forget(lake, pipeline, entity, key, now=now)
    for path in certificates:
        report.certificate(json.loads(path.read_text()), path)
    if not certificates:
        report.say(f"{entity.name}: the tables hold nothing of this key")


def _parse(pipeline: Pipeline, person: str) -> tuple[Entity, str]:
    name, _, key = person.partition(":")
    known = {entity.name: entity for entity in pipeline.entities}
    if name not in known or not key:
        names, example = ", ".join(known) or "none", max(known, default="users")
        raise ConfigurationError(f"{person}: must be an entity of {names} and a key, such as {example}:123")
    if right := right_key(known[name], key):
        raise ConfigurationError(f"{person}: a key of {name} is {right}")
    return known[name], key
