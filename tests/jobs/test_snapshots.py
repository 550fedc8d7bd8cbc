"""Going back to a snapshot, and doing again what came after it, ends in the same tables as if nothing had happened."""

import shutil
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from pulsar_lakehouse.domains.shop.declarations.orders import ORDERS
from pulsar_lakehouse.errors import ConfigurationError
from pulsar_lakehouse.gold.enrichment.declaration import ACTIONS
from pulsar_lakehouse.jobs import snapshots
from pulsar_lakehouse.jobs.maintenance import maintain
from pulsar_lakehouse.jobs.snapshots import (
    Snapshot,
    add,
    create,
    diff,
    drop,
    held_bytes,
    held_versions,
    named,
    present,
    refuse_lost,
    restorable,
    restore,
)
from pulsar_lakehouse.jobs.steps import reconcile_all
from pulsar_lakehouse.settings import Settings
from pulsar_lakehouse.tables.lake import Lake
from pulsar_lakehouse.tables.stored import table_names
from tests.crashes import fail_after
from tests.jobs.test_maintenance import follow
from tests.lake import expected, land_literally, own_home, tables
from tests.messages import item, order, tombstone, user
from tests.oracle import Oracle
from tests.shop import SHOP

FIRST = [
    *(user(1), user(3, place=1), item(1), order(1, place=1), order(2, place=2, user=2), order(3, place=3, user=3)),
    *(order(4, place=4, user=9), order(5, place=5, price=-1)),
]
SECOND = [
    *(user(2, place=2), tombstone("users", "3", when=5, place=3), item(1, 2.5, when=5, place=1)),
    *(order(1, place=6, when=11), order(6, place=7), order(7, place=8, user=8)),
]
DISCARDED = (3, 4)
"""The lines of orders that are discarded after the snapshot. Then, one of them was in gold, and one was waiting."""


@pytest.fixture(scope="module")
def made(lake: Lake, tmp_path_factory: pytest.TempPathFactory) -> Settings:
    project = own_home(lake.settings, tmp_path_factory.mktemp("snapshots"))
    land_literally(Lake(lake.spark, project), FIRST)
    follow(Lake(lake.spark, project))
    create(Lake(lake.spark, project), SHOP, "before")
    land_literally(Lake(lake.spark, project), SECOND)
    follow(Lake(lake.spark, project))
    places = [(0, 7, line, 0) for line in DISCARDED]
    rows = [("discard", "orders", place, None, "ada", None, None) for place in places]
    Lake(lake.spark, project).table(ACTIONS.name).append(lake.spark.createDataFrame(rows, ACTIONS.ddl))
    follow(Lake(lake.spark, project))
    assert tables(project) == wanted()
    return project


@pytest.fixture
def project(made: Settings, tmp_path: Path) -> Settings:
    shutil.copytree(made.home, tmp_path, dirs_exist_ok=True)
    return own_home(made, tmp_path)


def wanted() -> dict[str, list[Any]]:
    oracle = Oracle().run(FIRST).run(SECOND)
    oracle.discarded = [each for each in oracle.waiting if each["line_item_id"] in DISCARDED]
    oracle.waiting = [each for each in oracle.waiting if each not in oracle.discarded]
    return expected(oracle)


def lines(rows: list[Any]) -> list[int]:
    return [row["line_item_id"] for row in rows]


def restore_all(lake: Lake) -> None:
    for _ in restore(lake, SHOP, named(lake.settings, "before")):
        pass


@pytest.mark.long
def test_back_and_again_with_a_crash_after_each_step(
    spark: SparkSession, project: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    for step in ("forget_checkpoints", "go_back", "keep_discarded", "judge_again"):
        with monkeypatch.context() as patch:
            patch.setattr(snapshots, step, fail_after(getattr(snapshots, step)))
            with pytest.raises(RuntimeError, match="power cut"):
                restore_all(Lake(spark, project))
    restore_all(Lake(spark, project))
    then = expected(Oracle().run(FIRST))
    back = tables(project)
    assert {name: back[name] for name in ("users", "users_history", "items_history", "duplicates")} == {
        name: then[name] for name in ("users", "users_history", "items_history", "duplicates")
    }
    assert (lines(back["gold"]), lines(back["waiting"]), lines(back["discarded"])) == ([1], [2], [3, 4])
    assert changes_since(Lake(spark, project), named(project, "before")) == 0
    follow(Lake(spark, project))
    assert tables(project) == wanted()
    assert all(each.holds for each in reconcile_all(Lake(spark, project)))


def changes_since(lake: Lake, snapshot: Snapshot) -> int:
    """What the change feed of gold adds and removes, by the version of each row, without what cancels out."""
    name = ORDERS.gold_table
    since, until = snapshot.tables[name].version + 1, lake.table(name).version
    sign = F.when(F.col("_change_type").isin("insert", "update_postimage"), 1).otherwise(-1)
    feed = lake.table(name).changes(since, until).where("line_item_id != 3")
    return feed.groupBy("position", "item.sequence").agg(F.sum(sign).alias("times")).where("times != 0").count()


def test_a_run_without_the_rest_of_a_restore(
    spark: SparkSession, project: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = snapshots.go_back

    def go_back_and_fail(lake: Lake, name: str, version: int) -> None:
        real(lake, name, version)
        if name == ORDERS.waiting.name:
            raise RuntimeError("power cut")

    monkeypatch.setattr(snapshots, "go_back", go_back_and_fail)
    with pytest.raises(RuntimeError, match="power cut"):
        restore_all(Lake(spark, project))
    follow(Lake(spark, project))
    assert tables(project) == wanted()


VACUUM = DeltaTable.vacuum


def vacuum_at_once(table: DeltaTable, hours: int, **how: Any) -> list[str]:
    removed: list[str] = VACUUM(table, 0, **how | {"enforce_retention_duration": False})
    return removed


def test_a_snapshot_holds_files_until_it_is_dropped(
    spark: SparkSession, project: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(DeltaTable, "vacuum", vacuum_at_once)
    snapshot, before = named(project, "before"), held_bytes(project, named(project, "before"), restorable(SHOP))
    list(maintain(project))
    refuse_lost(project, SHOP, snapshot)
    assert held_bytes(project, snapshot, restorable(SHOP)) >= before > 0
    drop(Lake(spark, project), SHOP, "before")
    list(maintain(project))
    assert Lake(spark, project).table(ORDERS.gold_table).delta_property(snapshots.LOG_RETENTION) == "interval 7 days"
    with pytest.raises(ConfigurationError, match=r"^before: silver\.\w+ can't go back: .* is gone$"):
        refuse_lost(project, SHOP, snapshot)


def test_what_differs_from_a_snapshot(project: Settings) -> None:
    found = {each.table: each for each in diff(project, "before")}
    assert (found["gold.enriched_orders"].rows, found["bronze.orders"].rows) == ((2, 3), (5, 8))


def test_a_table_that_was_made_again_can_t_go_back(project: Settings) -> None:
    snapshot = named(project, "before")
    shutil.rmtree(project.table_path("silver.items"))
    with pytest.raises(ConfigurationError, match=r"^before: silver\.items was made again since, as by"):
        refuse_lost(project, SHOP, snapshot)


def test_homes_that_share_tables_share_snapshots(settings: Settings, tmp_path: Path) -> None:
    warehouse = tmp_path / "tables"
    ours, theirs = (
        settings.model_copy(update={"home": tmp_path / home, "warehouse": str(warehouse)})
        for home in ("ours", "theirs")
    )
    write_deltalake(ours.table_path("silver.users"), pa.table({"id": [1]}))
    made = Snapshot(name="before", created_at=datetime(2026, 1, 1, tzinfo=UTC), tables=present(ours))
    assert snapshots.snapshots(theirs) == []
    add(ours, made)
    assert (snapshots.snapshots(theirs), held_versions(theirs, "silver.users")) == ([made], [0])
    with pytest.raises(ConfigurationError, match=r"^before: there is a snapshot of this name"):
        add(theirs, replace(made, tables={}))
    assert (named(ours, "before"), list(table_names(ours))) == (made, ["silver.users"])


def test_names(spark: SparkSession, project: Settings) -> None:
    with pytest.raises(ConfigurationError, match=r"^no: no such snapshot; there are before$"):
        named(project, "no")
    with pytest.raises(ConfigurationError, match=r"^before: there is a snapshot of this name"):
        create(Lake(spark, project), SHOP, "before")
    with pytest.raises(ConfigurationError, match=r"^\.\./x: must be a name of letters"):
        create(Lake(spark, project), SHOP, "../x")
    with pytest.raises(ConfigurationError, match=r"/warehouse has no tables yet: `lakehouse run` creates them$"):
        create(Lake(spark, own_home(project, project.home / "other")), SHOP, "before")
