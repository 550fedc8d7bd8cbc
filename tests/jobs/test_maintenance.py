import os
from datetime import timedelta
from pathlib import Path

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from jobs.maintenance import clean_logs, maintain
from jobs.pipeline import ENRICHMENTS, ENTITIES
from jobs.steps import enriching, merging, prove
from jobs.streams import Outcome, catch_up
from lakehouse.leases import write_lease
from lakehouse.settings import Settings
from tests.lake import expected, land_literally, own_home, tables
from tests.messages import item, order, user
from tests.oracle import Oracle

WAVES = [
    [user(1, place=0), item(1, place=1), order(1, place=2), order(2, user=2, place=3)],
    [user(1, "Zoë", when=1, place=4), item(2, place=5), order(3, place=6), order(4, user=3, place=7)],
    [user(3, place=8), order(1, place=9), order(5, item=2, place=10)],
]


@pytest.fixture
def lake(spark: SparkSession, settings: Settings, tmp_path: Path) -> Settings:
    lake = own_home(settings, tmp_path)
    for wave in WAVES:
        land_literally(spark, lake, wave)
        follow(spark, lake)
    return lake


def follow(spark: SparkSession, lake: Settings) -> list[Outcome]:
    merged = catch_up(lake, merging(spark, lake, ENTITIES))
    return [*merged, *catch_up(lake, enriching(spark, lake, ENRICHMENTS))]


def files(lake: Settings, table: str) -> int:
    return len(DeltaTable(lake.table_path(table)).file_uris())


def test_old_logs_go(tmp_path: Path) -> None:
    old, new = tmp_path / "run" / "old.log", tmp_path / "run" / "new.log"
    old.parent.mkdir()
    for log in (old, new):
        log.touch()
    os.utime(old, (0, 0))
    assert clean_logs(tmp_path, keep=timedelta(days=30)) == 1
    assert list(old.parent.iterdir()) == [new]


def test_small_files_become_one_and_no_stream_takes_them_for_news(spark: SparkSession, lake: Settings) -> None:
    with write_lease(lake, ["silver.users"]):
        done = {each.table: each for each in maintain(lake)}
    assert done["bronze.orders"].compacted >= 3
    assert files(lake, "bronze.orders") == 1
    for table in ("silver.users", "quarantine.waiting_orders"):
        assert f"silver.users is being written by pid {os.getpid()} " in done[table].busy
    assert [each.busy for each in maintain(lake)] == [""] * len(done)
    assert {outcome.rows for outcome in follow(spark, lake)} == {0}
    oracle = Oracle()
    for wave in WAVES:
        oracle.run(wave)
    assert tables(lake) == expected(oracle)
    assert all(proof.holds for proof in prove(spark, lake))
