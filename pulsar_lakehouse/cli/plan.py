"""`lakehouse plan`: what the declarations make of what, what is wrong with them, and what they would change."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated

import typer

from pulsar_lakehouse.bronze.schemas import unreadable
from pulsar_lakehouse.bronze.source_readers import why_unread
from pulsar_lakehouse.cli import report, shapes
from pulsar_lakehouse.cli.pictures import write_picture
from pulsar_lakehouse.cli.shapes import AsJson
from pulsar_lakehouse.jobs.planning import Change, changes, resolve
from pulsar_lakehouse.jobs.steps import open_lake
from pulsar_lakehouse.pipeline.declared import Pipeline
from pulsar_lakehouse.pipeline.graph import nodes, picture
from pulsar_lakehouse.pipeline.loading import load, pipeline_of
from pulsar_lakehouse.progress import spinner
from pulsar_lakehouse.settings import load_settings
from pulsar_lakehouse.tables.definitions import rebuild_command
from pulsar_lakehouse.terminal import shown


def plan_command(
    picture_file: Annotated[
        Path | None, typer.Option("--picture", help="Draw the tables and where they come from, as SVG, to this file.")
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Leave out what needs Spark: SQL, types, and the tables that exist.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Check the declarations, and show which tables are made from what, and what would change in those that exist.

    Needs no broker and no table, and reads no rows. Exits with 78 if there are mistakes, with a line for each.
    """
    settings = load_settings()
    project = replace(load(settings.declarations), pipeline=pipeline_of(settings))
    if not as_json:
        rows = ((each.layer, each.name, "\n".join(each.sources), each.how) for each in nodes(project.pipeline))
        columns, title = ("layer", "table", "made from", "how"), f"Declared in {shown(settings.declarations)}"
        report.OUT.print(report.grid(columns, rows, title=title))
    if picture_file is not None:
        write_picture(picture_file, picture(project.pipeline))
    found, differing, unread = None, [], []
    if not quick:
        with open_lake(settings, writes=[]) as lake, spinner("Resolving SQL, and comparing with the tables that exist"):
            found = changes(lake, project, resolve(lake, project))
        differing = [(topic.name, line) for topic in project.pipeline.topics for line in unreadable(settings, topic)]
        unread = [
            (each, why)
            for each in project.pipeline.sources
            if each.source and (why := why_unread(settings, each.source))
        ]
    if as_json:
        shapes.show(shape(project.pipeline, found, [*differing, *((each.name, why) for each, why in unread)]))
    elif found is not None:
        show_changes(found)
        for name, line in differing:
            report.say(f"{name}: {line}: its messages are malformed until that is declared")
        for entity, why in unread:
            report.say(f"{project.place(entity)}: {why}: nothing of it lands until that is right")


def shape(
    pipeline: Pipeline, found: Mapping[str, Sequence[Change]] | None, differing: Sequence[tuple[str, str]]
) -> shapes.Plan:
    """`found` is None if the tables that exist were not looked at."""
    is_known = found is not None
    of_tables = [each for of_table in (found or {}).values() for each in of_table]
    unchanged = [name for name, of_table in (found or {}).items() if not of_table]
    return shapes.Plan(
        tables=[shapes.Declared(**asdict(each)) for each in nodes(pipeline)],
        changes=[shapes.Change(**asdict(each)) for each in of_tables] if is_known else None,
        unchanged=unchanged if is_known else None,
        unreadable=[shapes.Unreadable(topic=name, why=line) for name, line in differing] if is_known else None,
    )


def show_changes(found: Mapping[str, Sequence[Change]]) -> None:
    """Print what differs from each table that exists, and how to rebuild those for which that is needed."""
    differing = [each for of_table in found.values() for each in of_table]
    if all(each.what == "new" for each in differing) and all(found.values()):
        report.say("No table exists yet: `lakehouse run` makes them, and `lakehouse refresh` those that SQL declares")
        return
    if differing:
        columns, rows = (
            ("table", "what differs", "what happens"),
            ((each.table, each.what, each.then) for each in differing),
        )
        report.OUT.print(report.grid(columns, rows, title="Compared with the tables that exist"))
    unchanged = [name for name, of_table in found.items() if not of_table]
    report.say(f"Unchanged: {', '.join(unchanged) or 'none'}")
    if rebuilt := {each.rebuild for each in differing if each.rebuild}:
        report.say(f"`{rebuild_command(sorted(rebuilt))}` makes these again, and what depends on them")
