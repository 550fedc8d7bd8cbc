"""`lakehouse merge`: from bronze changelogs to silver."""

from typing import Annotated

import typer

from pulsar_lakehouse.cli import report
from pulsar_lakehouse.cli.arguments import chosen, end_if_nothing_is_new
from pulsar_lakehouse.jobs.new_data import Step
from pulsar_lakehouse.jobs.steps import merging, open_lake, require
from pulsar_lakehouse.jobs.streams import catch_up
from pulsar_lakehouse.pipeline.loading import pipeline_of
from pulsar_lakehouse.settings import load_settings


def merge_command(entities: Annotated[list[str] | None, typer.Argument(help="Default: all.")] = None) -> None:
    """Merge what is new in bronze changelogs into their silver tables."""
    settings = load_settings()
    wanted = chosen(entities, {entity.name: entity for entity in pipeline_of(settings).entities})
    end_if_nothing_is_new(settings, Step.MERGE)
    with open_lake(settings, writes=[entity.table.name for entity in wanted]) as lake:
        require(lake, [entity.topic.bronze_table for entity in wanted], made_by="land")
        report.outcomes(catch_up(settings, merging(lake, wanted)), settings)
