"""The status of all tables, read from their logs and from the checkpoints, without Spark."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

import duckdb
import obstore
import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable

from pulsar_lakehouse.checkpoints.batches import Batch, batches, last_batch
from pulsar_lakehouse.checkpoints.offsets import table_offsets
from pulsar_lakehouse.settings import Settings
from pulsar_lakehouse.storage import files_in, folder
from pulsar_lakehouse.tables.stored import bytes_of, dataset_of, existing_tables, files_of, is_stored, stored_table

REFRESHES_TABLE = "gold.refreshes"
"""The table that records which versions of its sources the refresh of a SQL table has read."""


@dataclass(frozen=True, kw_only=True)
class TableStatus:
    name: str
    rows: int
    version: int
    size: int
    """Bytes of the table's current files."""
    files: int
    """The number of these files."""
    deleted: int | None
    """Rows whose key is deleted by now; None if the table has no such rows, or if its log does not say."""
    made_at: datetime
    """When the table was created, in UTC."""
    ran_at: datetime
    """When the table's stream last finished a batch; for a table without a stream, when it last changed. In UTC."""
    lag: int | None
    """Commits of its source tables that its stream or its last refresh has not read; None without source tables."""
    lag_seconds: float | None
    """The age of the oldest of these commits; 0 if there are none, None without source tables."""


def table_statuses(settings: Settings, tables: Mapping[str, DeltaTable] | None = None) -> list[TableStatus]:
    """`tables` are those of `existing_tables`, if they are open already: to open them takes half of the time."""
    tables = dict(existing_tables(settings)) if tables is None else tables
    by_id = {str(table.metadata().id): (name, table.version()) for name, table in tables.items()}
    refreshed = _refreshed(tables.get(REFRESHES_TABLE))
    found = []
    for name, table in tables.items():
        batch = last_batch(settings, name)
        read = _read_by(batch) if batch else refreshed.get(str(table.metadata().id), ())
        files = files_of(table)
        found.append(
            TableStatus(
                name=name,
                rows=table.count(),
                version=table.version(),
                size=bytes_of(files),
                files=len(files),
                deleted=_deleted(table, files),
                made_at=datetime.fromtimestamp((table.metadata().created_time or 0) / 1000, UTC),
                ran_at=batch.ended if batch else _changed_at(table),
                lag=_behind(read, by_id),
                lag_seconds=_age(settings, read, by_id),
            )
        )
    return found


def unread_commits(settings: Settings, stream: str) -> int | None:
    """Commits that a stream without a table has not read of its sources; None if it has no checkpoint."""
    batch = last_batch(settings, stream)
    by_id = {str(table.metadata().id): (name, table.version()) for name, table in existing_tables(settings)}
    return _behind(_read_by(batch), by_id) if batch else None


def _deleted(table: DeltaTable, files: pa.Table) -> int | None:
    """Rows whose `deleted_at` is over, by the statistics of files. It looks into those alone where some are not."""
    nulls, first, last = (f"{figure}.deleted_at" for figure in ("null_count", "min", "max"))
    if nulls not in files.column_names:
        return None
    looked_into = 0
    if last in files.column_names:
        now = pa.scalar(datetime.now(UTC), files[last].type)
        files = files.filter(pc.coalesce(pc.less_equal(files[first], now), True))
        ends_later = pc.coalesce(pc.greater(files[last], now), False)
        if (partly := files.filter(ends_later)).num_rows:
            looked_into = dataset_of(table, partly).count_rows(filter=pc.field("deleted_at") <= now)
        files = files.filter(pc.invert(ends_later))
    return looked_into + (pc.sum(pc.subtract(files["num_records"], files[nulls])).as_py() or 0)


def _age(settings: Settings, read: Sequence[tuple[str, int]], tables: Mapping[str, tuple[str, int]]) -> float | None:
    """Seconds since the oldest commit that was not read. None if no table was read.

    `tables` are names and current versions, by table id.
    """
    behind = [(tables[table][0], version) for table, version in read if table in tables and version < tables[table][1]]
    unread = [committed_at(settings, name, version + 1) for name, version in behind]
    return max((time.time() - at.timestamp() for at in unread), default=0.0) if read else None


def committed_at(settings: Settings, table: str, version: int) -> datetime:
    """When a version was written, by its file in the log; by the oldest file if this one is cleaned up."""
    log = folder(settings, f"{settings.table_path(table)}/_delta_log")
    try:
        return obstore.head(log, f"{version:020}.json")["last_modified"]
    except FileNotFoundError:
        return min(files_in(settings, f"{settings.table_path(table)}/_delta_log").values())


def _changed_at(table: DeltaTable) -> datetime:
    return datetime.fromtimestamp(table.history(1)[0]["timestamp"] / 1000, UTC)


def batches_of(settings: Settings, stream: str) -> list[tuple[datetime, dict[str, int]]]:
    """When each batch of a stream ended, in UTC, with the last version that it has read by table id; oldest first."""
    return [(batch.ended, dict(_read_by(batch))) for batch in batches(settings, stream)]


def read_to_its_end(settings: Settings, stream: str, table: str) -> int:
    """The last version of a table, of which it reads all rows, that a stream has surely read to its end; -1 if none."""
    batch = last_batch(settings, stream)
    if not batch or not is_stored(settings, table):
        return -1
    id = str(stored_table(settings, table).metadata().id)
    return min((each.all_read for each in table_offsets(batch.offsets) if each.table_id == id), default=-1)


def _read_by(batch: Batch) -> list[tuple[str, int]]:
    """The id of each table that the stream reads, with the last version that it has read; not if that is torn."""
    return [(offset.table_id, offset.last_read) for offset in table_offsets(batch.offsets)]


def _refreshed(table: DeltaTable | None) -> dict[str, list[tuple[str, int]]]:
    """For each table id, the ids of the tables that its last refresh has read, with their versions."""
    if table is None:
        return {}
    refreshes = duckdb.from_arrow(dataset_of(table))
    last = refreshes.aggregate('table_id, map_values(arg_max(sources, "at"))', "table_id").fetchall()
    return {made: [(source["id"], source["version"]) for source in sources] for made, sources in last}


def _behind(read: Sequence[tuple[str, int]], tables: Mapping[str, tuple[str, int]]) -> int | None:
    """How many versions are newer than those that were read. `tables` are as in `_age`. None if no table was read."""
    return sum(max(0, tables.get(table, ("", 0))[1] - version) for table, version in read) if read else None
