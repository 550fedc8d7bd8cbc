"""`lakehouse land`: from topics to bronze."""

from typing import Annotated

import typer

from pulsar_lakehouse.cli import report
from pulsar_lakehouse.cli.arguments import chosen, end_if_nothing_is_new
from pulsar_lakehouse.jobs.new_data import Step
from pulsar_lakehouse.jobs.steps import landing, open_lake
from pulsar_lakehouse.jobs.streams import catch_up
from pulsar_lakehouse.local import broker
from pulsar_lakehouse.pipeline.loading import pipeline_of
from pulsar_lakehouse.settings import load_settings


def land_command(
    topics: Annotated[list[str] | None, typer.Argument(help="Default: all.")] = None,
    accept_loss: Annotated[
        bool, typer.Option("--accept-loss", help="Continue after lost messages, and record them in bronze.losses.")
    ] = False,
    take_over: Annotated[
        bool, typer.Option("--take-over", help="Land topics that a warehouse which is gone has landed.")
    ] = False,
) -> None:
    """Land what is new in topics in their bronze tables."""
    settings = load_settings()
    wanted = chosen(topics, {topic.name: topic for topic in pipeline_of(settings).topics})
    end_if_nothing_is_new(settings, Step.LAND)
    broker.healthy_endpoint(settings)  # fail before Spark starts
    with open_lake(settings, writes=[topic.bronze_table for topic in wanted], lands=wanted) as lake:
        report.outcomes(
            catch_up(settings, landing(lake, wanted, accept_loss=accept_loss, take_over=take_over)), settings
        )
