"""`lakehouse trace`: what happened to the messages of a key."""

from typing import Annotated

import typer

from pulsar_lakehouse.cli import report, shapes
from pulsar_lakehouse.cli.shapes import AsJson
from pulsar_lakehouse.jobs.operating import operator_of
from pulsar_lakehouse.jobs.trace import trace, traceable
from pulsar_lakehouse.pipeline.loading import pipeline_of
from pulsar_lakehouse.settings import load_settings
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
    declared = traceable(pipeline_of(settings), topic)
    events = trace(settings, declared, key, operator_of(settings))
    if as_json:
        shapes.show(shapes.Trace(topic=declared.topic.name, key=key, events=events))
        return
    tables = [each.table if each.version is None else f"{each.table} v{each.version}" for each in events]
    width, place = max(map(len, tables)), max(len(each.message) for each in events)
    for each, table in zip(events, tables, strict=True):
        what = one_line(each.what)
        report.say(f"{each.at:%Y-%m-%d %H:%M:%S}  {table:<{width}}  {each.message:<{place}}  {what}")
