"""Data files and logs of older versions. The tables are those of deltalake, which needs no Spark."""

import os
import time
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from pulsar_lakehouse.settings import Settings
from pulsar_lakehouse.tables.lake import Lake
from pulsar_lakehouse.tables.old_files import last_checkpoint_size, remove_old_files, remove_old_log
from tests.lake import own_home

NAME = "silver.people"


@pytest.fixture
def lake(settings: Settings, tmp_path: Path) -> Settings:
    """One table of three versions, of which the second has a checkpoint. The first row has left it."""
    lake = own_home(settings, tmp_path)
    table = lake.table_path(NAME)
    write_deltalake(table, pa.table({"name": ["Zaphod"]}))
    write_deltalake(table, pa.table({"name": ["Ada"]}), mode="overwrite")
    DeltaTable(table).create_checkpoint()
    write_deltalake(table, pa.table({"name": ["Eve"]}), mode="append")
    return lake


def log(lake: Lake) -> list[str]:
    return sorted(file.name.lstrip("0") for file in Path(lake.settings.table_path(NAME), "_delta_log").glob("0*"))


def names(lake: Lake, version: int | None = None) -> list[str]:
    rows: list[str] = DeltaTable(lake.settings.table_path(NAME), version=version).to_pyarrow_table()["name"].to_pylist()
    return rows


def age(lake: Lake, version: int, *, days: int) -> None:
    commit = Path(lake.settings.table_path(NAME), "_delta_log", f"{version:020}.json")
    then = commit.stat().st_mtime - days * 86_400
    os.utime(commit, (then, then))


def test_the_log_before_the_last_checkpoint_goes(lake: Lake) -> None:
    assert remove_old_log(lake.settings, NAME, keep=timedelta()) == 1
    assert log(lake.settings) == ["1.checkpoint.parquet", "1.json", "2.json"]
    assert names(lake.settings) == ["Eve", "Ada"]


def test_the_log_that_is_not_old_enough_stays(lake: Lake) -> None:
    age(lake.settings, 0, days=30)
    age(lake.settings, 1, days=2)
    assert remove_old_log(lake.settings, NAME, keep=timedelta(days=7)) == 0
    assert remove_old_log(lake.settings, NAME, keep=timedelta(days=1)) == 1


def test_the_log_that_a_snapshot_needs_stays(lake: Lake) -> None:
    assert remove_old_log(lake.settings, NAME, keep=timedelta(), held=[0, 2]) == 0
    assert remove_old_log(lake.settings, NAME, keep=timedelta(), held=[1, 2]) == 1
    assert log(lake.settings) == ["1.checkpoint.parquet", "1.json", "2.json"]
    assert names(lake.settings, version=1) == ["Ada"]


def test_files_that_left_the_table_go(lake: Lake) -> None:
    assert remove_old_files(lake.settings, NAME, keep=timedelta(days=7)) == 0
    assert remove_old_files(lake.settings, NAME, keep=timedelta()) == 1
    assert names(lake.settings) == ["Eve", "Ada"]


def test_checkpoints_and_checksums_that_others_make_up_for_go(settings: Settings, tmp_path: Path) -> None:
    """The newest checkpoint stays, the first of each day, and what has had a successor for less than an hour."""
    lake, hour = own_home(settings, tmp_path), 3_600
    written, midnight = Path(lake.table_path(NAME), "_delta_log"), time.time() // 86_400 * 86_400
    for version in range(7):
        write_deltalake(lake.table_path(NAME), pa.table({"name": [f"Eve {version}"]}), mode="append")
        DeltaTable(lake.table_path(NAME)).create_checkpoint()
        (written / f"{version:020}.crc").touch()
    hours = (-46, -45, -44, -22, -21, -21, -20)
    for version, at in enumerate(hours):
        for file in written.glob(f"{version:020}.*"):
            os.utime(file, (midnight + at * hour, midnight + at * hour))
    assert remove_old_log(lake, NAME, keep=timedelta(days=7)) == 10
    kept = [".checkpoint.parquet", "3.checkpoint.parquet", "6.checkpoint.parquet", "6.crc"]
    assert [name for name in log(lake) if not name.endswith("json")] == kept
    DeltaTable(lake.table_path(NAME)).create_checkpoint()
    write_deltalake(lake.table_path(NAME), pa.table({"name": ["Eve 7"]}), mode="append")
    DeltaTable(lake.table_path(NAME)).create_checkpoint()
    assert remove_old_log(lake, NAME, keep=timedelta(days=7)) == 0
    assert [len(names(lake, version)) for version in range(8)] == [1, 2, 3, 4, 5, 6, 7, 8]
    assert last_checkpoint_size(lake, NAME) >= 8
