"""`lakehouse lineage`: what is made from what, when it was last made, and where columns come from."""

from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text
from rich.tree import Tree

from pulsar_lakehouse.cli import report, shapes
from pulsar_lakehouse.cli.pictures import write_picture
from pulsar_lakehouse.cli.shapes import AsJson
from pulsar_lakehouse.jobs.lineage.flows import Flow
from pulsar_lakehouse.jobs.lineage.kept import LastRun
from pulsar_lakehouse.jobs.lineage.tracing import Source, last_runs, trace_columns
from pulsar_lakehouse.pipeline.graph import Node, Note, nodes, picture
from pulsar_lakehouse.pipeline.loading import pipeline_of
from pulsar_lakehouse.settings import load_settings


def lineage_command(
    column: Annotated[
        str, typer.Argument(help="Show where this comes from: a column such as gold.enriched_orders.price, or a table.")
    ] = "",
    picture_file: Annotated[
        Path | None, typer.Option("--picture", help="Draw the tables and their last runs, as SVG, to this file.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show what is made from what, and each step's last run; or where a column comes from. Does not start Spark."""
    settings = load_settings()
    pipeline = pipeline_of(settings)
    if column:
        found = trace_columns(pipeline, column)
        if as_json:
            shapes.show(shapes.Lineage(tables=[], columns=[_column(each) for each in found]))
            return
        for source in found:
            report.OUT.print(_tree(source))
        return
    runs = last_runs(settings, pipeline)
    ended = {name: Note(told(name, last), is_bad=last.state == "FAIL") for name, (_, last) in runs.items() if last}
    if picture_file is not None:
        write_picture(picture_file, picture(pipeline, ended))
    if as_json:
        shapes.show(
            shapes.Lineage(
                tables=[_made(node, *runs.get(node.name, (None, None))) for node in nodes(pipeline)], columns=[]
            )
        )
        return
    rows = []
    for node in nodes(pipeline):
        step = runs[node.name][0].step if node.name in runs else ""
        last = ended.get(node.name, Note(""))
        rows.append((node.name, "\n".join(node.sources), step, Text(last.text, "red" if last.is_bad else "")))
    report.OUT.print(report.grid(("table", "made from", "step", "last run"), rows))


def told(name: str, last: LastRun) -> str:
    """When a step last ran, and how many rows of a table it wrote."""
    rows = _rows(name, last)
    counted = "" if rows is None else f", {rows:,} rows"
    how = {"COMPLETE": counted, "FAIL": ", failed", "ABORT": ", stopped", "START": ", has not ended"}[last.state]
    return f"{report.age(last.at)} ago{how}"


def _rows(name: str, last: LastRun) -> int | None:
    """The rows of a table that the run wrote, or else those that it read."""
    return last.written.get(name, last.read)


def _made(node: Node, flow: Flow | None, last: LastRun | None) -> shapes.Made:
    run = None
    if last is not None:
        run = shapes.LastRun(state=last.state, at=last.at, rows=_rows(node.name, last), failure=last.failure)
    return shapes.Made(name=node.name, sources=node.sources, step=flow.step if flow else "", last_run=run)


def _column(source: Source) -> shapes.Column:
    return shapes.Column(name=source.name, sql=source.sql, sources=[_column(each) for each in source.sources])


def _tree(source: Source) -> Tree:
    tree = Tree(Text.assemble(source.name, (f" = {source.sql}" if source.sql else "", "dim")))
    tree.children += map(_tree, source.sources)
    return tree
