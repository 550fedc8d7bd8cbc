"""`lakehouse plan`: what the declarations make of what, what is wrong with them, and what they would change."""

from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated

import typer

from pulsar_lakehouse.cli import report, shapes
from pulsar_lakehouse.cli.pictures import write_picture
from pulsar_lakehouse.cli.shapes import AsJson
from pulsar_lakehouse.errors import ConfigurationError
from pulsar_lakehouse.pipeline.graph import nodes, picture
from pulsar_lakehouse.pipeline.loading import load, pipeline_of
from pulsar_lakehouse.settings import load_settings
from pulsar_lakehouse.terminal import shown


def plan_command(
    picture_file: Annotated[
        Path | None, typer.Option("--picture", help="Draw the tables and where they come from, as SVG, to this file.")
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Leave out what needs Spark: SQL, types, and the tables that exist.")
    ] = False,
    approve: Annotated[
        bool, typer.Option("--approve", help="Accept changes by which new rows have NULL where rows have values.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Check the declarations, and show which tables are made from what, and what would change in those that exist.

    Needs no broker and no table, and reads no rows. Exits with 78 if there are mistakes, with a line for each, and if
    values would be lost: no run does that before it is approved.
    """
    if quick and approve:
        raise ConfigurationError("--approve can't be combined with --quick, which looks at no table")
    settings = load_settings()
    project = replace(load(settings.declarations), pipeline=pipeline_of(settings))
    declared = nodes(project.pipeline)
    if not as_json:
        rows = ((each.layer, each.name, "\n".join(each.sources), each.how) for each in declared)
        columns, title = ("layer", "table", "made from", "how"), f"Declared in {shown(settings.declarations)}"
        report.OUT.print(report.grid(columns, rows, title=title))
    if picture_file is not None:
        write_picture(picture_file, picture(project.pipeline))
    if not quick:
        from pulsar_lakehouse.cli import planned  # loads what --quick does without

        planned.show(settings, project, approve=approve, as_json=as_json)
    elif as_json:
        tables = [shapes.Declared(**asdict(each)) for each in declared]
        unknown = dict.fromkeys(("changes", "unchanged", "unreadable", "command", "reads"))
        shapes.show(shapes.Plan(tables=tables, **unknown))
