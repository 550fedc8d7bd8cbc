"""`lakehouse lineage`: what is made from what, when it was last made, and where columns come from."""

from pathlib import Path
from typing import Annotated

import typer

from pulsar_lakehouse.cli import report
from pulsar_lakehouse.cli.plan import write_picture
from pulsar_lakehouse.jobs.lineage.tracing import last_runs, trace_columns
from pulsar_lakehouse.pipeline.graph import Note, nodes, picture
from pulsar_lakehouse.pipeline.loading import pipeline_of
from pulsar_lakehouse.settings import load_settings


def lineage_command(
    column: Annotated[
        str, typer.Argument(help="Show where this comes from: a column such as gold.enriched_orders.price, or a table.")
    ] = "",
    picture_file: Annotated[
        Path | None, typer.Option("--picture", help="Draw the tables and their last runs, as SVG, to this file.")
    ] = None,
) -> None:
    """Show what is made from what, and each step's last run; or where a column comes from. Does not start Spark."""
    settings = load_settings()
    pipeline = pipeline_of(settings)
    if column:
        report.sources(trace_columns(pipeline, column))
        return
    found = last_runs(settings, pipeline)
    report.lineage(nodes(pipeline), found)
    if picture_file is not None:
        notes = {
            name: Note(report.when_and_what(name, last), is_bad=last.state == "FAIL")
            for name, (_, last) in found.items()
            if last
        }
        write_picture(picture_file, picture(pipeline, notes))
