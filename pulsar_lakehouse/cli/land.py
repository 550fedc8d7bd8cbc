"""`lakehouse land`: from topics and sources to bronze."""

from typing import Annotated

import typer

from pulsar_lakehouse.cli import report
from pulsar_lakehouse.cli.arguments import chosen, end_if_nothing_is_new
from pulsar_lakehouse.jobs.new_data import Step
from pulsar_lakehouse.jobs.steps import landing, landing_services, landing_sources, open_lake
from pulsar_lakehouse.jobs.streams import catch_up
from pulsar_lakehouse.local import broker
from pulsar_lakehouse.pipeline.loading import pipeline_of
from pulsar_lakehouse.settings import load_settings


def land_command(
    topics: Annotated[list[str] | None, typer.Argument(help="Default: all.")] = None,
    accept_loss: Annotated[
        bool,
        typer.Option(
            "--accept-loss",
            help="Continue after lost messages, and record them; take any deletes of sources named here.",
        ),
    ] = False,
    take_over: Annotated[
        bool, typer.Option("--take-over", help="Land topics that a warehouse which is gone has landed.")
    ] = False,
) -> None:
    """Land what is new in topics, and in sources of state, in their bronze tables.

    A source that is named is read, whether a snapshot is due or not. A service that is named is asked again where its
    answer was malformed.
    """
    settings = load_settings()
    pipeline = pipeline_of(settings)
    wanted = chosen(topics, {topic.name: topic for topic in pipeline.bronze})
    sources = [each for each in pipeline.sources if each.topic in wanted]
    in_pulsar = [topic for topic in wanted if topic in pipeline.topics]
    end_if_nothing_is_new(settings, Step.LAND)
    if in_pulsar:
        broker.healthy_endpoint(settings)  # fail before Spark starts
    with open_lake(settings, writes=[topic.bronze_table for topic in wanted], lands=in_pulsar) as lake:
        streams = landing(lake, in_pulsar, accept_loss=accept_loss, take_over=take_over)
        streams += landing_sources(lake, sources, always=bool(topics), accept_deletes=accept_loss and bool(topics))
        services = [each for each in pipeline.services if each in sources]
        streams += landing_services(lake, pipeline, services, again=bool(topics))
        report.outcomes(catch_up(settings, streams), settings)
