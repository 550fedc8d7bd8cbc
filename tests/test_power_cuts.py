from pathlib import Path

import pytest

from pulsar_lakehouse.power_cuts import BOOT, remove_torn_commits
from pulsar_lakehouse.settings import Settings
from pulsar_lakehouse.tables.direct import append_values
from pulsar_lakehouse.tables.stored import stored_table
from tests.failing_writes.direct import NAME, create


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    """A home with a table of one row, and a file for each of two rows."""
    own = Settings(home=tmp_path)
    create(own)
    for id in (1, 2):
        append_values(own, NAME, [{"id": id, "name": "Ada"}])
    (own.home / BOOT).unlink()
    return own


def rows(settings: Settings) -> list[int]:
    return sorted(stored_table(settings, NAME).to_pyarrow_table()["id"].to_pylist())


def log(settings: Settings) -> Path:
    return Path(settings.table_path(NAME), "_delta_log")


def newest(settings: Settings) -> Path:
    """The file that was written last."""
    return max(Path(settings.table_path(NAME)).glob("*.parquet"), key=lambda file: file.stat().st_mtime_ns)


def test_a_whole_commit_stays(settings: Settings) -> None:
    remove_torn_commits(settings)
    assert rows(settings) == [1, 2]


@pytest.mark.parametrize("left", [b"", b'{"commitInfo":{"timest', bytes(600)])
def test_a_torn_commit_is_removed_with_its_checksum(settings: Settings, left: bytes) -> None:
    (log(settings) / f"{2:020}.json").write_bytes(left)
    remove_torn_commits(settings)
    assert rows(settings) == [1]
    assert not [path for path in log(settings).iterdir() if f"{2:020}" in path.name]


def test_a_commit_without_its_file_is_removed(settings: Settings) -> None:
    added, whole = newest(settings), newest(settings).read_bytes()
    added.write_bytes(whole[:100] + bytes(len(whole) - 100))
    remove_torn_commits(settings)
    assert rows(settings) == [1]


def test_a_commit_after_a_torn_one_is_removed(settings: Settings) -> None:
    (log(settings) / f"{1:020}.json").write_bytes(b"")
    remove_torn_commits(settings)
    assert rows(settings) == []


def test_tables_are_looked_through_once_after_a_start(settings: Settings) -> None:
    remove_torn_commits(settings)
    torn = log(settings) / f"{2:020}.json"
    torn.write_bytes(b"")
    remove_torn_commits(settings)
    assert torn.exists()


def test_who_appends_looks_first(settings: Settings) -> None:
    (log(settings) / f"{2:020}.json").write_bytes(b"")
    append_values(settings, NAME, [{"id": 3, "name": "Bea"}])
    assert rows(settings) == [1, 3]
