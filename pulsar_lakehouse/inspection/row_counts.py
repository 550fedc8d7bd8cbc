"""How many rows commits have written, by the table's log alone."""

from datetime import UTC, datetime

import pyarrow.compute as pc
from deltalake import DeltaTable

from pulsar_lakehouse.tables.stored import bytes_of, files_of

OF_APPEND = ("numOutputRows", "num_added_rows")
"""Figures of commits, as Spark and delta-rs name them. A MERGE of Spark counts in the first the rows that it copied."""
OF_MERGE = (
    *("numTargetRowsInserted", "numTargetRowsUpdated", "numTargetRowsDeleted"),
    *("num_target_rows_inserted", "num_target_rows_updated", "num_target_rows_deleted"),
)


def rows_written(table: DeltaTable, since: int) -> int:
    """Rows that the commits after version `since` inserted, updated or deleted by a MERGE, or appended."""
    count = table.version() - since
    return sum(_rows(commit.get("operationMetrics", {})) for commit in (table.history(count) if count > 0 else ()))


def rows_and_bytes(table: DeltaTable) -> tuple[int, int]:
    """How many rows a table has, and the size of its files."""
    files = files_of(table)
    return (pc.sum(files["num_records"]).as_py() or 0 if len(files) else 0), bytes_of(files)


def rows_of_commits(table: DeltaTable, count: int) -> list[tuple[datetime, int]]:
    """When each of the last commits was made, and how many rows it wrote, as `rows_written` counts; oldest first.

    Commits that wrote none are left out.
    """
    commits = ((commit["timestamp"], _rows(commit.get("operationMetrics", {}))) for commit in table.history(count))
    return [(datetime.fromtimestamp(at / 1000, UTC), rows) for at, rows in commits if rows][::-1]


def _rows(figures: dict[str, str]) -> int:
    names = [name for name in OF_MERGE if name in figures] or OF_APPEND
    return sum(int(figures.get(name, 0)) for name in names)
