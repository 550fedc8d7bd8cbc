"""What commits did to rows, from tables that were written without Spark."""

from pathlib import Path

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, write_deltalake

from pulsar_lakehouse.inspection.row_history import History
from pulsar_lakehouse.settings import Settings
from tests.lake import own_home

NAME = "gold.notes"


def changes(project: Settings) -> list[tuple[int, object, object, str]]:
    found = History(project, NAME).changes("k = 1", {}, identity=lambda row: row["k"])
    return [
        (each.version, each.before and each.before["n"], each.after and each.after["n"], each.reason) for each in found
    ]


def test_a_row_that_is_only_rewritten_has_not_changed(settings: Settings, tmp_path: Path) -> None:
    """Its new file has a column that the old one lacks, and NaN is as it was."""
    project = own_home(settings, tmp_path)
    path = project.table_path(NAME)
    nested = {"k": [1], "n": [5], "ratio": [float("nan")], "of": [{"a": 1}]}
    write_deltalake(path, pa.table(nested))
    wider = pa.table({"k": [2], "n": [6], "ratio": [0.5], "of": [{"a": 1, "b": 2}], "more": ["x"]})
    write_deltalake(path, wider, mode="append", schema_mode="merge")
    DeltaTable(path).optimize.compact()
    assert changes(project) == [(0, None, 5, "")]


def test_the_reason_of_a_commit(settings: Settings, tmp_path: Path) -> None:
    project = own_home(settings, tmp_path)
    path = project.table_path(NAME)
    write_deltalake(path, pa.table({"k": [1, 2], "n": [5, 6]}))
    because = CommitProperties(custom_metadata={"userMetadata": "a restore of before"})
    DeltaTable(path).delete("k = 1", commit_properties=because)
    assert changes(project) == [(0, None, 5, ""), (1, 5, None, "a restore of before")]
