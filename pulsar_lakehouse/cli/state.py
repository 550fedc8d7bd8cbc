"""`lakehouse state`: what the pipeline keeps to be exact."""

from collections.abc import Iterable
from typing import Annotated

import typer

from pulsar_lakehouse.cli import report
from pulsar_lakehouse.cli.arguments import key_of
from pulsar_lakehouse.errors import LakehouseError
from pulsar_lakehouse.gold.enrichment.declaration import Enrichment
from pulsar_lakehouse.jobs.operating import operator_of
from pulsar_lakehouse.jobs.retention import states
from pulsar_lakehouse.jobs.state_of_key import Part, state_of_facts, state_of_key
from pulsar_lakehouse.pipeline.loading import pipeline_of
from pulsar_lakehouse.settings import load_settings
from pulsar_lakehouse.silver.entity import Entity


def state_command(
    key: Annotated[
        str, typer.Argument(help="An entity or facts and a key, such as users:42. Default: all, in brief.")
    ] = "",
) -> None:
    """Show the state that is kept to be exact, and for how long; or what is kept for a key of an entity or of facts."""
    settings = load_settings()
    if not key:
        if not (found := states(settings)):
            raise LakehouseError("no state yet: `lakehouse run` makes the tables")
        report.OUT.print(report.states(found))
        return
    pipeline = pipeline_of(settings)
    declared: tuple[Entity | Enrichment, ...] = (*pipeline.entities, *pipeline.enrichments)
    named, value = key_of({each.topic.name: each for each in declared}, key)
    if isinstance(named, Entity):
        _show(state_of_key(settings, pipeline, named, value, operator_of(settings)))
    else:
        _show([state_of_facts(settings, named, value)])


def _show(parts: Iterable[Part]) -> None:
    """Print tables with titles, in one line if they have a single column or no rows."""
    for part in parts:
        if len(part.columns) > 1 and part.rows:
            report.rows(part.columns, part.rows, title=part.title)
        else:
            report.say(f"{part.title}: {', '.join(report.cell(row[0]) for row in part.rows) or 'none'}")
