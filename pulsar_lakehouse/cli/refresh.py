"""`lakehouse refresh`: bring the gold tables declared in SQL up to date."""

from collections.abc import Sequence
from typing import Annotated

import typer
from deltalake.exceptions import DeltaError
from pyspark.errors import PySparkException

from pulsar_lakehouse.cli import report
from pulsar_lakehouse.errors import ConfigurationError, LakehouseError, PermanentError
from pulsar_lakehouse.gold.sql.declaration import SQL_ROWS, SqlTable
from pulsar_lakehouse.gold.sql.quarantine import clear_undeclared
from pulsar_lakehouse.jobs.steps import open_lake, refreshing
from pulsar_lakehouse.pipeline.loading import pipeline_of
from pulsar_lakehouse.settings import load_settings
from pulsar_lakehouse.spark.error_causes import cause_of, is_permanent
from pulsar_lakehouse.tables.lake import Lake


def refresh_command(
    tables: Annotated[list[str] | None, typer.Argument(help="Such as revenue_by_hour. Default: all.")] = None,
    full: Annotated[bool, typer.Option("--full", help="Recompute whole tables, including incremental ones.")] = False,
) -> None:
    """Bring the tables declared in SQL up to date, and publish what changed in them.

    Rows on which the SQL fails are left out and reported.
    """
    settings = load_settings()
    chosen = _chosen(tables, pipeline_of(settings).sql_tables)
    with open_lake(settings, writes=[table.name for table in chosen]) as lake:
        refresh_tables(lake, chosen, full=full)


def refresh_tables(lake: Lake, tables: Sequence[SqlTable], *, full: bool = False) -> None:
    """Refresh these tables one after the other, and show what was done. The process must hold their leases.

    Raises LakehouseError if any of them fails, once all others are refreshed.
    """
    failed: list[LakehouseError] = []
    for table in tables:
        try:
            [done] = refreshing(lake, [table], full=full)
        except LakehouseError as error:
            failed.append(error)
            continue
        except (PySparkException, DeltaError) as error:
            kind = PermanentError if is_permanent(error) else LakehouseError
            failed.append(kind(f"{table.name}: {cause_of(error)}"))
            continue
        report.refreshed([done])
        if done.quarantined:
            line = f"{done.table}: {done.quarantined:,} in {SQL_ROWS.name}"
            line += f", such as: {done.failing[0]}" if done.failing else ""
            report.say(line)
            report.note([line], lake.settings)
    clear_undeclared(lake, [table.name for table in pipeline_of(lake.settings).sql_tables])
    if failed:
        # A retry is worthwhile if it can help one of them.
        kind = next((type(each) for each in failed if not isinstance(each, PermanentError)), type(failed[0]))
        raise kind(". ".join(map(str, failed)))


def _chosen(names: list[str] | None, declared: Sequence[SqlTable]) -> list[SqlTable]:
    known = {table.name.partition(".")[2]: table for table in declared}
    for name in names or ():
        if name.removeprefix("gold.") not in known:
            raise ConfigurationError(f"{name}: no SQL file declares it; there are {', '.join(known)}")
    wanted = {name.removeprefix("gold.") for name in names or known}
    return [table for name, table in known.items() if name in wanted]
