"""`lakehouse wait`: until a message is in its table."""

from typing import Annotated

import typer

from pulsar_lakehouse.cli import report
from pulsar_lakehouse.cli.arguments import chosen, seconds
from pulsar_lakehouse.errors import LakehouseError, NotYetError
from pulsar_lakehouse.jobs.operating import operator_of
from pulsar_lakehouse.jobs.whereabouts import layers, message_id, whereabouts
from pulsar_lakehouse.pipeline.loading import pipeline_of
from pulsar_lakehouse.progress import wait_until
from pulsar_lakehouse.settings import load_settings


def wait_command(
    name: Annotated[str, typer.Argument(metavar="TOPIC", help="A declared topic.")],
    id: Annotated[
        str, typer.Argument(metavar="MESSAGE_ID", help="As `lakehouse trace` or a client of Pulsar prints it.")
    ],
    layer: Annotated[
        str,
        typer.Option("--in", help="bronze, silver or gold. Default: the last one that messages of the topic reach."),
    ] = "",
    timeout: Annotated[str, typer.Option(help="How long to wait, such as 10s or 5m. 0s only looks.")] = "1m",
) -> None:
    """Wait until a message is in its table; or say where it is. Does not start Spark, and does not run the pipeline.

    Exits with 1 at once if it won't come: it is malformed, a duplicate or discarded; and with 75 at the end of the time
    if it has not landed, was not processed, or waits in quarantine.
    """
    settings, sought, longest = load_settings(), message_id(id), seconds(timeout, option="--timeout")
    pipeline = pipeline_of(settings)
    [topic] = chosen([name], pipeline.kinds_in_pulsar)
    reached = layers(pipeline, topic.name)
    [into] = chosen([layer or list(reached)[-1]], reached, lacking=f"messages of {name} reach only")
    reader = operator_of(settings)
    found = whereabouts(settings, topic, sought, into, reader)

    def is_settled() -> bool:
        nonlocal found
        found = whereabouts(settings, topic, sought, into, reader)
        return found.has_arrived or found.is_final

    wait_until(is_settled, f"Waiting for {name} {id}", timeout=longest)
    if not found.has_arrived:
        raise (LakehouseError if found.is_final else NotYetError)(f"{name} {id}: {found.told}")
    report.say(f"{name} {id}: {found.told}")
