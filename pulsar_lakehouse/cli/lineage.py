"""`lakehouse lineage`: what is made from what, when it was last made, and where columns come from."""

from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text
from rich.tree import Tree

from pulsar_lakehouse.cli import report
from pulsar_lakehouse.cli.plan import write_picture
from pulsar_lakehouse.jobs.lineage.kept import LastRun
from pulsar_lakehouse.jobs.lineage.tracing import Source, last_runs, trace_columns
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
        for source in trace_columns(pipeline, column):
            report.OUT.print(_tree(source))
        return
    runs = last_runs(settings, pipeline)
    ended = {name: Note(told(name, last), is_bad=last.state == "FAIL") for name, (_, last) in runs.items() if last}
    rows = []
    for node in nodes(pipeline):
        step = runs[node.name][0].step if node.name in runs else ""
        last = ended.get(node.name, Note(""))
        rows.append((node.name, "\n".join(node.sources), step, Text(last.text, "red" if last.is_bad else "")))
    report.OUT.print(report.grid(("table", "made from", "step", "last run"), rows))
    if picture_file is not None:
        write_picture(picture_file, picture(pipeline, ended))


def told(name: str, last: LastRun) -> str:
    """When a step last ran, and how many rows of a table it wrote."""
    rows = last.written.get(name, last.read)
    counted = "" if rows is None else f", {rows:,} rows"
    how = {"COMPLETE": counted, "FAIL": ", failed", "ABORT": ", stopped", "START": ", has not ended"}[last.state]
    return f"{report.age(last.at)} ago{how}"


def _tree(source: Source) -> Tree:
    tree = Tree(Text.assemble(source.name, (f" = {source.sql}" if source.sql else "", "dim")))
    tree.children += map(_tree, source.sources)
    return tree
