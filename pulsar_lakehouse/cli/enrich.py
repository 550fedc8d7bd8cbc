"""`lakehouse enrich`: from bronze facts and silver to gold."""

from typing import Annotated

import typer

from pulsar_lakehouse.cli import report
from pulsar_lakehouse.cli.arguments import chosen, end_if_nothing_is_new
from pulsar_lakehouse.jobs.new_data import Step
from pulsar_lakehouse.jobs.steps import enriching, open_lake, require
from pulsar_lakehouse.jobs.streams import catch_up
from pulsar_lakehouse.pipeline.loading import pipeline_of
from pulsar_lakehouse.settings import load_settings


def enrich_command(facts: Annotated[list[str] | None, typer.Argument(help="Default: all.")] = None) -> None:
    """Join what is new in bronze facts with silver into gold, and retry facts whose missing state has arrived."""
    settings = load_settings()
    wanted = chosen(facts, {facts.topic.name: facts for facts in pipeline_of(settings).enrichments})
    end_if_nothing_is_new(settings, Step.ENRICH)
    with open_lake(settings, writes=[enrichment.gold_table for enrichment in wanted]) as lake:
        require(lake, [enrichment.topic.bronze_table for enrichment in wanted], made_by="land")
        require(lake, [table for each in wanted for table in each.state_tables], made_by="merge")
        report.outcomes(catch_up(settings, enriching(lake, wanted)), settings)
