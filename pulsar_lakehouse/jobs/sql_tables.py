"""Refresh the gold tables declared in SQL, one after the other, whichever of them fails."""

from collections.abc import Iterator, Sequence

from deltalake.exceptions import DeltaError
from pyspark.errors import PySparkException

from pulsar_lakehouse.errors import LakehouseError, PermanentError
from pulsar_lakehouse.gold.sql.declaration import SqlTable
from pulsar_lakehouse.gold.sql.quarantine import clear_undeclared
from pulsar_lakehouse.gold.sql.refresh import FAILED, Refreshed
from pulsar_lakehouse.jobs.delivery import refreshing
from pulsar_lakehouse.jobs.streams import failures_noted
from pulsar_lakehouse.pipeline.loading import pipeline_of
from pulsar_lakehouse.records import keep_failure
from pulsar_lakehouse.spark.error_causes import cause_of, is_permanent
from pulsar_lakehouse.tables.lake import Lake


def refresh_each(lake: Lake, tables: Sequence[SqlTable], *, full: bool = False) -> Iterator[Refreshed]:
    """Refresh these tables; yields what was done. The process must hold their leases.

    Raises LakehouseError if any of them fails, once all others are refreshed.
    """
    failed: list[LakehouseError] = []
    for table in tables:
        try:
            with failures_noted(lake.settings, [f"refresh {table.name}"]):
                for done in refreshing(lake, [table], full=full):
                    keep_failure(lake.settings, f"refresh {table.name}", _why_failed(done))
                    yield done
        except LakehouseError as error:
            failed.append(error)
        except (PySparkException, DeltaError) as error:
            kind = PermanentError if is_permanent(error) else LakehouseError
            failed.append(kind(f"{table.name}: {cause_of(error).removeprefix(f'{table.name}: ')}"))
    clear_undeclared(lake, [table.name for table in pipeline_of(lake.settings).sql_tables])
    if failed:
        # A retry is worthwhile if it can help one of them.
        kind = next((type(each) for each in failed if not isinstance(each, PermanentError)), type(failed[0]))
        raise kind(". ".join(map(str, failed)))


def _why_failed(done: Refreshed) -> str:
    return f"refresh {done.table}: {done.reason}" if done.kind == FAILED else ""
