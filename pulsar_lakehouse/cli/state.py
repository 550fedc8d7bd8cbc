"""`lakehouse state`: what the pipeline keeps to be exact."""

from typing import Annotated

import typer

from pulsar_lakehouse.cli import report
from pulsar_lakehouse.cli.backfill import right_key
from pulsar_lakehouse.errors import ConfigurationError, LakehouseError
from pulsar_lakehouse.jobs.retention import states
from pulsar_lakehouse.jobs.state_of_key import state_of_facts, state_of_key
from pulsar_lakehouse.pipeline.loading import pipeline_of
from pulsar_lakehouse.settings import load_settings


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
        report.show([report.states(found)])
        return
    pipeline = pipeline_of(settings)
    entities = {entity.name: entity for entity in pipeline.entities}
    facts = {each.topic.name: each for each in pipeline.enrichments}
    name, _, value = key.partition(":")
    if name not in (known := {**entities, **facts}) or not value:
        example = f"{next(iter(known), 'users')}:123"
        raise ConfigurationError(f"{key}: must be one of {', '.join(known)} and a key, such as {example}")
    if name in facts:
        report.parts([state_of_facts(settings, facts[name], value)])
        return
    if right := right_key(entities[name], value):
        raise ConfigurationError(f"{key}: a key of {name} is {right}")
    report.parts(state_of_key(settings, pipeline, entities[name], value))
