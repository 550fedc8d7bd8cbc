import errno
import os
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from pulsar_lakehouse.power_cuts import BOOT, remove_torn_commits
from pulsar_lakehouse.settings import Settings
from pulsar_lakehouse.tables.checksums import checksum_path
from pulsar_lakehouse.tables.direct import append_values, compact
from pulsar_lakehouse.tables.stored import dataset_of, stored_table
from tests.failing_writes.direct import NAME, create


@pytest.fixture
def own(tmp_path: Path) -> Settings:
    """A home with a table, and a file for each of two rows, whose commits may not have been synced."""
    own = Settings(home=tmp_path)
    create(own)
    for id in (1, 2):
        append_values(own, NAME, [{"id": id, "name": "Ada"}])
        checksum(own, id).unlink()
    (own.home / BOOT).unlink()
    return own


def rows(own: Settings) -> list[int]:
    return sorted(stored_table(own, NAME).to_pyarrow_table()["id"].to_pylist())


def log(own: Settings) -> Path:
    return Path(own.table_path(NAME), "_delta_log")


def checksum(own: Settings, version: int) -> Path:
    """It is written once the commit has been synced."""
    return log(own) / f"{version:020}.crc"


def newest(own: Settings) -> Path:
    """The file that was written last."""
    return max(Path(own.table_path(NAME)).glob("*.parquet"), key=lambda file: file.stat().st_mtime_ns)


def test_a_whole_commit_stays(own: Settings) -> None:
    remove_torn_commits(own)
    assert rows(own) == [1, 2]


@pytest.mark.parametrize("left", [b"", b'{"commitInfo":{"timest', bytes(600)])
def test_a_torn_commit_is_removed(own: Settings, left: bytes) -> None:
    (log(own) / f"{2:020}.json").write_bytes(left)
    remove_torn_commits(own)
    assert rows(own) == [1]
    assert not [path for path in log(own).iterdir() if f"{2:020}" in path.name]


def test_a_commit_without_its_file_is_removed(own: Settings) -> None:
    added, whole = newest(own), newest(own).read_bytes()
    added.write_bytes(whole[:100] + bytes(len(whole) - 100))
    remove_torn_commits(own)
    assert rows(own) == [1]


def test_a_commit_with_torn_checksums_can_be_read(own: Settings) -> None:
    kept = Path(checksum_path(str(newest(own))))
    kept.write_bytes(kept.read_bytes()[:-4] + bytes(4))
    remove_torn_commits(own)
    assert len(dataset_of(stored_table(own, NAME)).to_table()) == 2


def test_a_commit_whose_file_can_not_be_read_now_stays(own: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(pq, "ParquetFile", refuse)
    with pytest.raises(OSError, match="Input/output"):
        remove_torn_commits(own)
    assert stored_table(own, NAME).version() == 2


def test_a_commit_that_is_being_written_stays(own: Settings) -> None:
    drafts = [log(own) / f"{3:020}.json#1", log(own) / f".{3:020}.json.0c.tmp"]
    for draft in drafts:
        draft.touch()
    remove_torn_commits(own)
    assert all(draft.exists() for draft in drafts)


def test_an_old_commit_stays_when_maintenance_has_removed_its_file(own: Settings) -> None:
    newest(own).unlink()
    os.utime(log(own) / f"{2:020}.json", (0, 0))
    remove_torn_commits(own)
    assert stored_table(own, NAME).version() == 2


def test_a_commit_that_was_synced_stays_whatever_has_become_of_its_file(own: Settings) -> None:
    newest(own).unlink()
    checksum(own, 2).touch()
    remove_torn_commits(own)
    assert stored_table(own, NAME).version() == 2


def test_a_commit_stays_when_its_file_was_compacted_and_removed(own: Settings) -> None:
    before = [*Path(own.table_path(NAME)).glob("*.parquet")]
    compact(own, NAME, stored_table(own, NAME))
    checksum(own, 3).unlink()
    for path in before:
        path.unlink()
    remove_torn_commits(own)
    assert rows(own) == [1, 2]


def test_a_commit_after_a_torn_one_is_removed(own: Settings) -> None:
    (log(own) / f"{1:020}.json").write_bytes(b"")
    remove_torn_commits(own)
    assert rows(own) == []


def test_tables_are_looked_through_once_after_a_start(own: Settings) -> None:
    remove_torn_commits(own)
    torn = log(own) / f"{2:020}.json"
    torn.write_bytes(b"")
    remove_torn_commits(own)
    assert torn.exists()


def test_who_appends_looks_first(own: Settings) -> None:
    (log(own) / f"{2:020}.json").write_bytes(b"")
    append_values(own, NAME, [{"id": 3, "name": "Bea"}])
    assert rows(own) == [1, 3]
