"""`lakehouse refresh`: the gold tables that SQL files declare."""

from typing import Annotated

import typer

from gold.declarations import SqlTable
from jobs import report
from jobs.pipeline import SQL_TABLES
from jobs.steps import refreshing, spark_for
from lakehouse.errors import ConfigurationError
from lakehouse.settings import load_settings


def refresh_command(
    tables: Annotated[list[str] | None, typer.Argument(help="Such as revenue_by_hour. Default: all.")] = None,
    full: Annotated[bool, typer.Option("--full", help="Compute all anew, also what is incremental.")] = False,
) -> None:
    """Bring the tables that SQL files in `gold` declare up to date, and publish what changed in them."""
    chosen, settings = _chosen(tables), load_settings()
    with spark_for(settings, writes=[table.name for table in chosen]) as spark:
        for done in refreshing(spark, settings, chosen, anew=full):
            report.say(
                f"{done.table}: {done.kind} ({done.reason}): "
                f"{done.inserted:,} inserted, {done.updated:,} updated, {done.deleted:,} deleted"
            )


def _chosen(names: list[str] | None) -> list[SqlTable]:
    known = {table.name.partition(".")[2]: table for table in SQL_TABLES}
    for name in names or ():
        if name.removeprefix("gold.") not in known:
            raise ConfigurationError(f"{name}: no SQL file declares it; there are {', '.join(known)}")
    wanted = {name.removeprefix("gold.") for name in names or known}
    return [table for name, table in known.items() if name in wanted]
