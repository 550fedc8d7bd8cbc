"""`lakehouse trace`: what happened to the messages of a key."""

from dataclasses import asdict
from typing import Annotated

import typer

from pulsar_lakehouse.cli import report, shapes
from pulsar_lakehouse.cli.shapes import AsJson
from pulsar_lakehouse.errors import ConfigurationError, LakehouseError
from pulsar_lakehouse.gold.enrichment.declaration import Enrichment
from pulsar_lakehouse.jobs.trace import trace_entity, trace_facts
from pulsar_lakehouse.pipeline.declared import Pipeline
from pulsar_lakehouse.pipeline.loading import pipeline_of
from pulsar_lakehouse.settings import load_settings
from pulsar_lakehouse.silver.entity import Entity
from pulsar_lakehouse.terminal import one_line


def trace_command(
    key: Annotated[list[str], typer.Argument(help="The values of the key columns, or of the first of them.")],
    topic: Annotated[
        str,
        typer.Option(help="Of facts or an entity. Default: the only topic of facts or, without facts, of entities."),
    ] = "",
    as_json: AsJson = False,
) -> None:
    """Tell what happened to the messages of a key, in the order of time, and why; without starting Spark."""
    settings = load_settings()
    pipeline = pipeline_of(settings)
    declared = _declared(pipeline, topic)
    if isinstance(declared, Entity):
        events = trace_entity(settings, declared, key)
    else:
        events = trace_facts(settings, declared, key)
    if not events:
        raise LakehouseError(f"{declared.topic.name} {' '.join(key)}: no message of this key has landed")
    if as_json:
        told = [shapes.Event(**asdict(each)) for each in events]
        shapes.show(shapes.Trace(topic=declared.topic.name, key=key, events=told))
        return
    tables = [each.table if each.version is None else f"{each.table} v{each.version}" for each in events]
    width, place = max(map(len, tables)), max(len(each.message) for each in events)
    for each, table in zip(events, tables, strict=True):
        what = one_line(each.what)
        report.say(f"{each.at:%Y-%m-%d %H:%M:%S}  {table:<{width}}  {each.message:<{place}}  {what}")


def _declared(pipeline: Pipeline, topic: str) -> Entity | Enrichment:
    """The facts or the entity of a topic; without a name, the only facts or, if there are none, the only entity.

    Raises ConfigurationError if there is no such topic, or several.
    """
    facts = {each.topic.name: each for each in pipeline.enrichments}
    entities = {each.name: each for each in pipeline.entities}
    known: dict[str, Entity | Enrichment] = {**facts, **entities}
    names = ", ".join(known) or "none"
    if topic:
        if topic not in known:
            raise ConfigurationError(f"--topic {topic}: no such facts or entity; there are {names}")
        return known[topic]
    likely: list[Entity | Enrichment] = [*(facts or entities).values()]
    if len(likely) != 1:
        raise ConfigurationError(f"name the topic by --topic: there are {names}")
    return likely[0]
