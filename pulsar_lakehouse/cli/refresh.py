"""`lakehouse refresh`: bring the gold tables declared in SQL up to date."""

from collections.abc import Iterable
from typing import Annotated

import typer

from pulsar_lakehouse.cli import report
from pulsar_lakehouse.cli.arguments import chosen
from pulsar_lakehouse.gold.sql.declaration import SQL_ROWS
from pulsar_lakehouse.gold.sql.refresh import Refreshed
from pulsar_lakehouse.jobs.sql_tables import refresh_each
from pulsar_lakehouse.jobs.steps import open_lake
from pulsar_lakehouse.pipeline.loading import pipeline_of
from pulsar_lakehouse.settings import Settings, load_settings


def refresh_command(
    tables: Annotated[list[str] | None, typer.Argument(help="Such as revenue_by_hour. Default: all.")] = None,
    full: Annotated[bool, typer.Option("--full", help="Recompute whole tables, including incremental ones.")] = False,
) -> None:
    """Bring the tables declared in SQL up to date, and publish what changed in them.

    Rows on which the SQL fails are left out and reported.
    """
    settings = load_settings()
    known = {table.name.removeprefix("gold."): table for table in pipeline_of(settings).sql_tables}
    names = [name.removeprefix("gold.") for name in tables or ()]
    wanted = [table.name for table in chosen(names, known, lacking="no SQL file declares it; there are")]
    in_order = [table for table in known.values() if table.name in wanted]
    with open_lake(settings, writes=wanted) as lake:
        show_refreshed(refresh_each(lake, in_order, full=full), settings)


def show_refreshed(done: Iterable[Refreshed], settings: Settings) -> None:
    """Print what each refresh did, and, also as a note, which rows it left out."""
    for each in done:
        changes = f"{each.inserted:,} inserted, {each.updated:,} updated, {each.deleted:,} deleted"
        report.say(f"{each.table}: {each.kind} ({each.reason}): {changes}")
        if each.quarantined:
            line = f"{each.table}: {each.quarantined:,} in {SQL_ROWS.name}"
            line += f", such as: {each.failing[0]}" if each.failing else ""
            report.say(line)
            report.note([line], settings)
