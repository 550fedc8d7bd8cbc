"""`lakehouse sql`: queries without Spark."""

import csv
from typing import Annotated

import typer

from pulsar_lakehouse.cli import report
from pulsar_lakehouse.inspection.query import query
from pulsar_lakehouse.jobs.operating import operator_of
from pulsar_lakehouse.settings import load_settings
from pulsar_lakehouse.terminal import one_line


def sql_command(
    statement: Annotated[str, typer.Argument(help='Such as "SELECT * FROM gold.enriched_orders LIMIT 5".')],
    as_csv: Annotated[bool, typer.Option("--csv", help="Print whole values, as CSV with a header.")] = False,
) -> None:
    """Run SQL over the tables, without starting Spark."""
    settings = load_settings()
    found = query(settings, statement, reader=operator_of(settings))
    if not as_csv:
        report.rows(found.columns, found.fetchall())
        return
    wrapped = {"blob", "struct", "list", "array", "map"}  # `whole` formats these, not DuckDB
    values = (f"#{n}" if kind.id in wrapped else f"#{n}::VARCHAR" for n, kind in enumerate(found.types, 1))
    rows = found.project(", ".join(values)).fetchall()
    shown = one_line if report.OUT.file.isatty() else str  # on a terminal, control characters are escaped
    writer = csv.writer(report.OUT.file, lineterminator="\n")
    writer.writerow(map(shown, found.columns))
    writer.writerows([shown(report.whole(value)) for value in row] for row in rows)
