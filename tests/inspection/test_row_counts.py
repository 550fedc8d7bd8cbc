"""Rows that commits wrote, by what Delta notes of them."""

from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any, cast

import pytest
from deltalake import DeltaTable

from pulsar_lakehouse.inspection.row_counts import rows_of_commits, rows_written

HISTORY: list[dict[str, Any]] = [
    {
        "operation": "MERGE",
        "operationMetrics": {
            **{"numOutputRows": "500", "numTargetRowsInserted": "3"},
            **{"numTargetRowsUpdated": "2", "numTargetRowsDeleted": "1"},
        },
    },
    {"operation": "OPTIMIZE", "operationMetrics": {"numAddedFiles": "1"}},
    {"operation": "STREAMING UPDATE", "operationMetrics": {"numOutputRows": "40"}},
    {"operation": "CREATE TABLE"},
    {
        "operation": "MERGE",
        "operationMetrics": {"num_output_rows": 500, "num_target_rows_inserted": 3, "num_target_rows_updated": 4},
    },
    {"operation": "WRITE", "operationMetrics": {"num_added_rows": 20}},
]


@pytest.mark.parametrize(("since", "rows"), [(5, 0), (4, 6), (3, 6), (2, 46), (1, 46), (0, 53), (-1, 73)])
def test_rows_are_those_of_the_commits_since(since: int, rows: int) -> None:
    def history(limit: int) -> list[dict[str, Any]]:
        return HISTORY[:limit]

    table = SimpleNamespace(version=lambda: 5, history=history)
    assert rows_written(cast(DeltaTable, table), since) == rows


def test_the_rows_of_the_last_commits_are_oldest_first_without_those_that_wrote_none() -> None:
    def history(limit: int) -> list[dict[str, Any]]:
        return [{**commit, "timestamp": (10 - at) * 1000} for at, commit in enumerate(HISTORY[:limit])]

    counts = [(datetime.fromtimestamp(at, UTC), rows) for at, rows in ((6, 7), (8, 40), (10, 6))]
    assert rows_of_commits(cast(DeltaTable, SimpleNamespace(history=history)), 5) == counts
