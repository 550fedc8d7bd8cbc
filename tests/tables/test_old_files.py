"""Data files and logs of older versions. The tables are those of deltalake, which needs no Spark."""

import os
import time
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from pulsar_lakehouse.settings import Settings
from pulsar_lakehouse.tables.checksums import write_checksums
from pulsar_lakehouse.tables.old_files import log_checkpoint_size, remove_old_files, remove_old_log
from tests.lake import own_home

NAME = "silver.people"


@pytest.fixture
def project(settings: Settings, tmp_path: Path) -> Settings:
    """One table of three versions, of which the second has a checkpoint. The first row has left it."""
    project = own_home(settings, tmp_path)
    table = project.table_path(NAME)
    write_deltalake(table, pa.table({"name": ["Zaphod"]}))
    write_deltalake(table, pa.table({"name": ["Ada"]}), mode="overwrite")
    DeltaTable(table).create_checkpoint()
    write_deltalake(table, pa.table({"name": ["Eve"]}), mode="append")
    return project


def log(project: Settings) -> list[str]:
    return sorted(file.name.lstrip("0") for file in Path(project.table_path(NAME), "_delta_log").glob("0*"))


def names(project: Settings, version: int | None = None) -> list[str]:
    rows: list[str] = DeltaTable(project.table_path(NAME), version=version).to_pyarrow_table()["name"].to_pylist()
    return rows


def age(project: Settings, version: int, *, days: int) -> None:
    commit = Path(project.table_path(NAME), "_delta_log", f"{version:020}.json")
    then = commit.stat().st_mtime - days * 86_400
    os.utime(commit, (then, then))


def test_the_log_before_the_last_checkpoint_goes(project: Settings) -> None:
    assert remove_old_log(project, NAME, keep=timedelta()) == 1
    assert log(project) == ["1.checkpoint.parquet", "1.json", "2.json"]
    assert names(project) == ["Eve", "Ada"]


def test_the_log_that_is_not_old_enough_stays(project: Settings) -> None:
    age(project, 0, days=30)
    age(project, 1, days=2)
    assert remove_old_log(project, NAME, keep=timedelta(days=7)) == 0
    assert remove_old_log(project, NAME, keep=timedelta(days=1)) == 1


def test_the_log_that_a_snapshot_needs_stays(project: Settings) -> None:
    assert remove_old_log(project, NAME, keep=timedelta(), held=[0, 2]) == 0
    assert remove_old_log(project, NAME, keep=timedelta(), held=[1, 2]) == 1
    assert log(project) == ["1.checkpoint.parquet", "1.json", "2.json"]
    assert names(project, version=1) == ["Ada"]


def test_checksums_go_with_their_files(project: Settings) -> None:
    path = Path(project.table_path(NAME))
    write_checksums(path, [file.name for file in path.glob("*.parquet")])
    remove_old_files(project, NAME, keep=timedelta())
    assert {file.name for file in path.glob(".*.crc")} == {f".{file.name}.crc" for file in path.glob("*.parquet")}


def test_checksums_of_partitions_stay_with_their_files(settings: Settings, tmp_path: Path) -> None:
    project = own_home(settings, tmp_path)
    path = Path(project.table_path(NAME))
    for name in ("Ada", "Eve"):
        write_deltalake(path, pa.table({"name": [name], "day": ["a"]}), mode="overwrite", partition_by=["day"])
    write_checksums(path, [f"day=a/{file.name}" for file in path.glob("day=a/*.parquet")])
    assert remove_old_files(project, NAME, keep=timedelta()) == 1
    [live] = path.glob("day=a/*.parquet")
    assert [file.name for file in path.glob("day=a/.*")] == [f".{live.name}.crc"]


def test_files_that_left_the_table_go(project: Settings) -> None:
    assert remove_old_files(project, NAME, keep=timedelta(days=7)) == 0
    assert remove_old_files(project, NAME, keep=timedelta()) == 1
    assert names(project) == ["Eve", "Ada"]


def test_checkpoints_and_checksums_that_others_make_up_for_go(settings: Settings, tmp_path: Path) -> None:
    """The newest checkpoint stays, the first of each day, and what has had a successor for less than an hour."""
    project, hour = own_home(settings, tmp_path), 3_600
    written, midnight = Path(project.table_path(NAME), "_delta_log"), time.time() // 86_400 * 86_400
    for version in range(7):
        write_deltalake(project.table_path(NAME), pa.table({"name": [f"Eve {version}"]}), mode="append")
        DeltaTable(project.table_path(NAME)).create_checkpoint()
        (written / f"{version:020}.crc").touch()
    hours = (-46, -45, -44, -22, -21, -21, -20)
    for version, at in enumerate(hours):
        for file in written.glob(f"{version:020}.*"):
            os.utime(file, (midnight + at * hour, midnight + at * hour))
    assert remove_old_log(project, NAME, keep=timedelta(days=7)) == 10
    kept = [".checkpoint.parquet", "3.checkpoint.parquet", "6.checkpoint.parquet", "6.crc"]
    assert [name for name in log(project) if not name.endswith("json")] == kept
    DeltaTable(project.table_path(NAME)).create_checkpoint()
    write_deltalake(project.table_path(NAME), pa.table({"name": ["Eve 7"]}), mode="append")
    DeltaTable(project.table_path(NAME)).create_checkpoint()
    assert remove_old_log(project, NAME, keep=timedelta(days=7)) == 0
    assert [len(names(project, version)) for version in range(8)] == [1, 2, 3, 4, 5, 6, 7, 8]
    assert log_checkpoint_size(project, NAME) >= 8
