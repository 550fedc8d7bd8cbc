"""What commits did to rows, from tables that were written without Spark."""

from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, write_deltalake

from pulsar_lakehouse.inspection.row_history import History
from pulsar_lakehouse.settings import Settings
from pulsar_lakehouse.tables.stored import Ranges
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


def test_rows_of_later_commits(settings: Settings, tmp_path: Path) -> None:
    """Also those that have left the table since."""
    project = own_home(settings, tmp_path)
    path = project.table_path(NAME)
    for n in (1, 2, 3):
        write_deltalake(path, pa.table({"k": [1], "n": [n]}), mode="append")
    DeltaTable(path).delete("n = 3")
    assert [row["n"] for row in History(project, NAME).rows_added_after(0, "k = 1", {})] == [2, 3]


@pytest.mark.parametrize("near", [{"of.a": (12, 13)}, {"of.b": ("v", "v")}, {"of.a": (12, None)}])
def test_files_out_of_the_ranges_are_not_read(settings: Settings, tmp_path: Path, near: Ranges) -> None:
    project = own_home(settings, tmp_path)
    path = project.table_path(NAME)
    write_deltalake(path, pa.table({"k": [1, 1], "of": [{"a": 0, "b": "q"}, {"a": 5, "b": "r"}]}))
    [file] = DeltaTable(path).file_uris()
    Path(file).write_text("no Parquet")
    write_deltalake(path, pa.table({"k": [1, 1], "of": [{"a": 10, "b": "u"}, {"a": 15, "b": "w"}]}), mode="append")
    found = History(project, NAME).changes("k = 1", {}, identity=lambda row: row["of"]["a"], near=near)
    assert [each.version for each in found] == [1, 1]


def test_rows_of_many_files_and_partitions(settings: Settings, tmp_path: Path) -> None:
    """A partition column is text, and can be NULL, and a later file has another column."""
    project = own_home(settings, tmp_path)
    path = project.table_path(NAME)
    write_deltalake(path, pa.table({"k": [1, 1], "day": [7, None]}), partition_by=["day"])
    more = pa.table({"k": [1], "day": [8], "more": ["x"]})
    write_deltalake(path, more, mode="append", schema_mode="merge")
    found = History(project, NAME).changes("k = 1", {}, identity=lambda row: row["day"])
    assert sorted((str(each.after and each.after["day"]), each.version) for each in found) == [
        ("7", 0),
        ("8", 1),
        ("None", 0),
    ]
