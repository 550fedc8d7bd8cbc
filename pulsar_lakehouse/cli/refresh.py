"""`lakehouse refresh`: bring the gold tables declared in SQL up to date."""

from collections.abc import Iterable
from typing import Annotated

import typer

from pulsar_lakehouse.cli import report
from pulsar_lakehouse.cli.arguments import chosen, end_if_nothing_is_new
from pulsar_lakehouse.cli.extras import require_extra
from pulsar_lakehouse.cli.validate import NEEDED, show_results
from pulsar_lakehouse.gold.sql.declaration import SQL_ROWS
from pulsar_lakehouse.gold.sql.refresh import Refreshed
from pulsar_lakehouse.jobs.new_data import Step
from pulsar_lakehouse.jobs.operating import operator_of
from pulsar_lakehouse.jobs.quality import validate_refreshed
from pulsar_lakehouse.jobs.sql_tables import refresh_each
from pulsar_lakehouse.jobs.steps import open_lake
from pulsar_lakehouse.pipeline.loading import pipeline_of
from pulsar_lakehouse.settings import Settings, load_settings


def refresh_command(
    tables: Annotated[list[str] | None, typer.Argument(help="Such as revenue_by_hour. Default: all.")] = None,
    full: Annotated[bool, typer.Option("--full", help="Recompute whole tables, including incremental ones.")] = False,
    validate: Annotated[bool, typer.Option("--validate", help="Then validate new rows of all of them.")] = False,
) -> None:
    """Bring the tables declared in SQL up to date, and publish what changed in them.

    Rows on which the SQL fails are left out and reported.
    """
    if validate:
        require_extra(*NEEDED)
    settings = load_settings()
    known = {table.name.removeprefix("gold."): table for table in pipeline_of(settings).sql_tables}
    names = [name.removeprefix("gold.") for name in tables or ()]
    wanted = [table.name for table in chosen(names, known, lacking="no SQL file declares it; there are")]
    in_order = [table for table in known.values() if table.name in wanted]
    end_if_nothing_is_new(settings, Step.REFRESH)
    with open_lake(settings, writes=wanted) as lake:
        show_refreshed(refresh_each(lake, in_order, full=full), settings)
        if validate:
            show_results(validate_refreshed(lake), settings)


def show_refreshed(done: Iterable[Refreshed], settings: Settings) -> None:
    """Print what each refresh did, and, also as a note, which rows it left out."""
    for each in done:
        changes = f"{each.inserted:,} inserted, {each.updated:,} updated, {each.deleted:,} deleted"
        report.say(f"{each.table}: {each.kind} ({each.reason}): {changes}")
        if each.inserted + each.updated + each.deleted:
            report.note([f"{each.table}: {changes}"], settings)
        if each.quarantined:
            line = f"{each.table}: {each.quarantined:,} in {SQL_ROWS.name}"
            if each.failing and not operator_of(settings).hides(SQL_ROWS.name, "reason"):
                line += f", such as: {each.failing[0]}"
            report.say(line)
            report.note([line], settings)
