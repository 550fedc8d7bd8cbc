"""The status of all tables, read from their logs and from the checkpoints, without Spark."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

import duckdb
from deltalake import DeltaTable

from lakehouse.delta.batches import Batch, last_batch
from lakehouse.delta.query import existing_tables
from lakehouse.settings import Settings

REFRESHES_TABLE = "gold.refreshes"
"""The table that records which versions of its sources the refresh of a SQL table has read."""


@dataclass(frozen=True, kw_only=True)
class TableStatus:
    name: str
    rows: int
    version: int
    size: int
    """Bytes of the table's current files."""
    ran_at: datetime
    """When the table's stream last finished a batch; for a table without a stream, when it last changed. In UTC."""
    lag: int | None
    """Commits of its source tables that its stream or its last refresh has not read; None without source tables."""


def table_statuses(settings: Settings) -> list[TableStatus]:
    tables = dict(existing_tables(settings))
    versions = {str(table.metadata().id): table.version() for table in tables.values()}
    refreshed = _refreshed(tables.get(REFRESHES_TABLE))
    return [
        TableStatus(
            name=name,
            rows=table.count(),
            version=table.version(),
            size=sum(table.get_add_actions(flatten=True)["size_bytes"].to_pylist()),
            ran_at=batch.ended if batch else _changed_at(table),
            lag=_behind(_read_by(batch) if batch else refreshed.get(str(table.metadata().id), ()), versions),
        )
        for name, table in tables.items()
        for batch in [last_batch(settings, name)]
    ]


def _changed_at(table: DeltaTable) -> datetime:
    return datetime.fromtimestamp(table.history(1)[0]["timestamp"] / 1000, UTC)


def _read_by(batch: Batch) -> list[tuple[str, int]]:
    """The id of each table that the stream reads, with the last version that it has read."""
    offsets = [json.loads(line) for line in batch.offsets.splitlines() if "reservoirId" in line]
    return [(offset["reservoirId"], _last_read(offset)) for offset in offsets]


def _last_read(offset: dict[str, object]) -> int:
    """The last version that an offset has reached. With a negative index, it is still before its version."""
    at, index = int(str(offset["reservoirVersion"])), int(str(offset["index"]))
    return at - 1 if index < 0 else at


def _refreshed(table: DeltaTable | None) -> dict[str, list[tuple[str, int]]]:
    """For each table id, the ids of the tables that its last refresh has read, with their versions."""
    if table is None:
        return {}
    refreshes = duckdb.from_arrow(table.to_pyarrow_dataset())
    last = refreshes.aggregate('table_id, map_values(arg_max(sources, "at"))', "table_id").fetchall()
    return {made: [(source["id"], source["version"]) for source in sources] for made, sources in last}


def _behind(read: Iterable[tuple[str, int]], versions: Mapping[str, int]) -> int | None:
    """How many versions are newer than those that were read. `versions` are the current ones, by table id.

    None if no table was read.
    """
    newer = [max(0, versions.get(table, 0) - version) for table, version in read]
    return sum(newer) if newer else None
