"""How many rows commits have written, by the table's log alone."""

from deltalake import DeltaTable

OF_ROWS = ("numOutputRows", "numTargetRowsInserted", "numTargetRowsUpdated", "numTargetRowsDeleted")
"""Figures of commits. A MERGE has the last three, and counts in the first the rows that it only copied."""


def rows_written(table: DeltaTable, since: int) -> int:
    """Rows that the commits after version `since` inserted, updated or deleted by a MERGE, or appended."""
    count = table.version() - since
    return sum(_rows(commit.get("operationMetrics", {})) for commit in (table.history(count) if count > 0 else ()))


def _rows(figures: dict[str, str]) -> int:
    first, *of_merge = (int(figures.get(name, 0)) for name in OF_ROWS)
    return sum(of_merge) if OF_ROWS[1] in figures else first
