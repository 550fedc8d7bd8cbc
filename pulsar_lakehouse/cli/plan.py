"""`lakehouse plan`: what the declarations make of what, what is wrong with them, and what they would change."""

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from pulsar_lakehouse.cli import report
from pulsar_lakehouse.errors import ConfigurationError
from pulsar_lakehouse.jobs.planning import changes, resolve
from pulsar_lakehouse.jobs.steps import open_lake
from pulsar_lakehouse.pipeline.graph import nodes, picture
from pulsar_lakehouse.pipeline.loading import load, pipeline_of
from pulsar_lakehouse.progress import spinner
from pulsar_lakehouse.settings import load_settings
from pulsar_lakehouse.terminal import shown


def plan_command(
    picture_file: Annotated[
        Path | None, typer.Option("--picture", help="Draw the tables and where they come from, as SVG, to this file.")
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Leave out what needs Spark: SQL, types, and the tables that exist.")
    ] = False,
) -> None:
    """Check the declarations, and show which tables are made from what, and what would change in those that exist.

    Needs no broker and no table, and reads no rows. Exits with 78 if there are mistakes, with a line for each.
    """
    settings = load_settings()
    project = replace(load(settings.declarations), pipeline=pipeline_of(settings))
    report.plan(nodes(project.pipeline), title=f"Declared in {shown(settings.declarations)}")
    if picture_file is not None:
        write_picture(picture_file, picture(project.pipeline))
    if quick:
        return
    with open_lake(settings, writes=[]) as lake, spinner("Resolving SQL, and comparing with the tables that exist"):
        found = changes(lake, project, resolve(lake, project))
    report.changes(found)


def write_picture(file: Path, drawn: str) -> None:
    try:
        file.write_text(drawn)
    except OSError as error:
        raise ConfigurationError(f"--picture {file}: can't be written: {error.strerror}") from None
