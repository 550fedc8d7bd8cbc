"""Backfills: of damaged gold, after changes of state, and by day, by key or of everything."""

import shutil
from collections.abc import Mapping
from datetime import date
from pathlib import Path
from typing import Any

import pytest
import typer
from pyspark.sql import SparkSession

from pulsar_lakehouse.cli import commands as cli
from pulsar_lakehouse.domains.shop.declarations.orders import ORDERS
from pulsar_lakehouse.gold.enrichment import backfill as steps
from pulsar_lakehouse.gold.enrichment.backfill import NEVER, Difference, Scope, backfill
from pulsar_lakehouse.gold.enrichment.declaration import BACKFILLS
from pulsar_lakehouse.gold.enrichment.reconciliation import reconcile_facts
from pulsar_lakehouse.gold.enrichment.writes import write_difference
from pulsar_lakehouse.jobs.backfill_requests import request
from pulsar_lakehouse.settings import Settings
from pulsar_lakehouse.tables.lake import Lake
from tests.crashes import BEGIN_WAITING, CORRECT_GOLD, END_WAITING, crash_after, fail_after
from tests.gold.enrichment.test_enrich import copy_of, enrich_orders, merge_changes
from tests.lake import land_literally, own_home, read, tables, versions
from tests.messages import at, item, message, millis, order, user

DAY = 24 * 60
MESSAGES = [
    user(1),
    user(2, place=1),
    user(3, place=2, mergedAt=millis(at(0)), parentUserId=2),
    item(1),
    order(1, place=1),
    order(2, place=2, user=2),
    order(3, place=3, user=3),
    order(4, place=4, user=9),
    order(5, place=5, when=10 + DAY),
    order(1, place=6, price=9.9),
    message("orders", b"{", key="7", place=7),
]
LATER = [user(2, "Zoë", when=30, place=3), user(1, "Eve", when=30, place=4)]
"""With a join with the latest state, they change no order that is in gold already."""


@pytest.fixture(scope="module")
def project(lake: Lake, tmp_path_factory: pytest.TempPathFactory) -> Settings:
    run = lake.settings.run.model_copy(update={"retries": 0})
    own = own_home(lake.settings, tmp_path_factory.mktemp("backfill")).model_copy(update={"run": run})
    for messages in (MESSAGES, LATER):
        land_literally(Lake(lake.spark, own), messages)
        merge_changes(Lake(lake.spark, own))
        enrich_orders(Lake(lake.spark, own))
    return own


def names(settings: Settings) -> Mapping[int, str]:
    return {row["line_item_id"]: row["user"]["first_name"] for row in read(settings, ORDERS.gold_table)}


def in_shadow(settings: Settings) -> list[dict[str, Any]]:
    return sorted(read(settings, ORDERS.shadow), key=lambda row: (row["line_item_id"], row["difference"]))


def shadow(settings: Settings) -> list[tuple[Any, ...]]:
    return [
        tuple(row[name] for name in ("line_item_id", "difference", "columns", "reason")) for row in in_shadow(settings)
    ]


def test_the_orders_of_a_day_get_the_state_of_today(spark: SparkSession, project: Settings, tmp_path: Path) -> None:
    own = copy_of(project, tmp_path)
    first = Scope(since=date(2026, 1, 1), until=date(2026, 1, 1))
    difference = Difference(unchanged=0, changed=3, added=0, removed=0, waiting=1)
    before = versions(own)
    assert backfill(Lake(spark, own), ORDERS, first, dry_run=True) == difference
    assert versions(own) == before | {ORDERS.shadow: 0}
    assert shadow(own) == [(line, "changed", ["user"], None) for line in (1, 2, 3)]
    users = [(row["before"]["user"]["first_name"], row["after"]["user"]["first_name"]) for row in in_shadow(own)]
    assert users == [("Ada", "Eve"), ("Ada", "Zoë"), ("Ada", "Zoë")]
    assert backfill(Lake(spark, own), ORDERS, first) == difference
    assert names(own) == {1: "Eve", 2: "Zoë", 3: "Zoë", 5: "Ada"}
    after = tables(own)
    assert versions(own)["gold.enriched_orders"] == before["gold.enriched_orders"] + 1
    assert backfill(Lake(spark, own), ORDERS, first) == Difference(
        unchanged=3, changed=0, added=0, removed=0, waiting=1
    )
    assert tables(own) == after
    assert versions(own)["gold.enriched_orders"] == before["gold.enriched_orders"] + 1
    assert reconcile_facts(Lake(spark, own), ORDERS).holds


def test_the_orders_of_a_key_are_those_of_users_merged_into_it_too(
    spark: SparkSession, project: Settings, tmp_path: Path
) -> None:
    own = copy_of(project, tmp_path)
    difference = backfill(Lake(spark, own), ORDERS, Scope(entity="users", key="2"))
    assert difference == Difference(unchanged=0, changed=2, added=0, removed=0, waiting=0)
    assert names(own) == {1: "Ada", 2: "Zoë", 3: "Zoë", 5: "Ada"}
    missing = Scope(entity="users", key="9")
    assert backfill(Lake(spark, own), ORDERS, missing) == Difference(
        unchanged=0, changed=0, added=0, removed=0, waiting=1
    )


SPOILT = [
    (1, "added", None, None),
    (1, "removed", None, NEVER),
    (2, "changed", ["price"], None),
    (3, "added", None, None),
    (3, "removed", None, "stored twice"),
    (3, "removed", None, "stored twice"),
    (4, "removed", None, "user missing"),
]
"""What a backfill would do to the orders that `spoil` damages."""


def spoil(lake: Lake) -> None:
    """Damage gold: order 1 has the position of no message, 2 has another price, 3 is there twice, 4 waits as well."""
    gold, waiting = (lake.table(name).delta for name in (ORDERS.gold_table, ORDERS.waiting.name))
    rows = gold.toDF()
    gold.update("line_item_id = 2", {"price": "0.0"})
    gold.update(
        "line_item_id = 1",
        {"position": "named_struct('partition', 0, 'ledger_id', 9L, 'entry_id', 9L, 'batch_index', 0)"},
    )
    twice = rows.where("line_item_id = 3")
    both = waiting.toDF().where("line_item_id = 4").select(*ORDERS.columns, "position", "order_date")
    wrong = twice.unionByName(both, allowMissingColumns=True)
    wrong.select(*rows.columns).write.format("delta").mode("append").save(lake.settings.table_path(ORDERS.gold_table))


@pytest.mark.long
def test_what_was_spoilt_is_mended_from_bronze_though_two_tries_crash(
    spark: SparkSession, project: Settings, tmp_path: Path
) -> None:
    own = copy_of(project, tmp_path)
    backfill(Lake(spark, own), ORDERS, Scope())
    right = tables(own)
    spoil(Lake(spark, own))
    assert not reconcile_facts(Lake(spark, own), ORDERS).holds
    backfill(Lake(spark, own), ORDERS, Scope(), dry_run=True)
    assert shadow(own) == SPOILT
    for write in (END_WAITING, CORRECT_GOLD):
        with crash_after(write), pytest.raises(RuntimeError, match="power cut"):
            backfill(Lake(spark, own), ORDERS, Scope())
    backfill(Lake(spark, own), ORDERS, Scope())
    assert tables(own) == right
    assert reconcile_facts(Lake(spark, own), ORDERS).holds


@pytest.mark.long
def test_orders_of_purged_users_stay(spark: SparkSession, project: Settings, tmp_path: Path) -> None:
    """User 3 was merged into 2. A late price corrects all orders. Those of purged users keep the user that gold has."""
    own = copy_of(project, tmp_path)
    Lake(spark, own).table("silver.users").delta.delete("id IN (1, 3)")
    land_literally(Lake(spark, own), [item(1, 2.0, when=5, place=9)])
    merge_changes(Lake(spark, own))
    enrich_orders(Lake(spark, own))
    assert backfill(Lake(spark, own), ORDERS, Scope()).waiting == 1
    assert [
        (row["line_item_id"], row["user"]["first_name"], row["user_merged"], row["item"]["price"])
        for row in tables(own)["gold"]
    ] == [(1, "Ada", None, 2.0), (2, "Zoë", None, 2.0), (3, "Ada", [3], 2.0), (5, "Ada", None, 2.0)]


@pytest.mark.long
def test_a_backfill_by_key_that_crashes_is_done_by_the_next(
    spark: SparkSession, project: Settings, tmp_path: Path
) -> None:
    """User 3 is now merged into 8, which is missing. Its order goes to quarantine, where it is no order of user 2."""
    own = copy_of(project, tmp_path)
    land_literally(Lake(spark, own), [user(3, when=40, place=9, mergedAt=millis(at(0)), parentUserId=8)])
    merge_changes(Lake(spark, own))
    of_two = Scope(entity="users", key="2")
    with crash_after(BEGIN_WAITING), pytest.raises(RuntimeError, match="power cut"):
        backfill(Lake(spark, own), ORDERS, of_two)
    backfill(Lake(spark, own), ORDERS, of_two)
    assert sorted(row["line_item_id"] for row in read(own, ORDERS.waiting.name)) == [3, 4]
    assert names(own) == {1: "Ada", 2: "Zoë", 5: "Ada"}


def test_a_backfill_that_is_asked_for_is_done_once(spark: SparkSession, project: Settings, tmp_path: Path) -> None:
    own = copy_of(project, tmp_path)
    request(own, ORDERS, Scope(since=date(2026, 1, 2), until=date(2026, 1, 2)), "because")
    enrich_orders(Lake(spark, own))
    shutil.rmtree(own.checkpoint_path(ORDERS.gold_table))
    enrich_orders(Lake(spark, own))
    rows = read(own, BACKFILLS.name)
    assert sorted((row["event"], row["changed"], row["unchanged"], row["note"]) for row in rows) == [
        ("done", 1, 0, None),
        ("requested", None, None, "because"),
    ]
    assert names(own) == {1: "Ada", 2: "Ada", 3: "Ada", 5: "Eve"}


@pytest.mark.long
@pytest.mark.parametrize(("failures", "events"), [(1, ["tried", "done"]), (2, ["tried", "failed"])])
def test_a_backfill_that_fails_half_way_is_tried_again_but_not_for_ever(
    spark: SparkSession,
    project: Settings,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    failures: int,
    events: list[str],
) -> None:
    own = copy_of(project, tmp_path)
    own = own.model_copy(update={"run": own.run.model_copy(update={"retries": 1, "retry_delay": 0})})
    monkeypatch.setattr(steps, "TRIES", 2)
    request(own, ORDERS, Scope(since=date(2026, 1, 2), until=date(2026, 1, 2)), "")
    tries = iter([fail_after(write_difference)] * failures + [write_difference])
    monkeypatch.setattr(steps, "write_difference", lambda *args, **more: next(tries)(*args, **more))
    enrich_orders(Lake(spark, own))
    rows = sorted(read(own, BACKFILLS.name), key=lambda row: row["at"])
    assert [row["event"] for row in rows] == ["requested", *events]


def test_what_a_rebuild_would_change_is_shown_and_left_as_a_table(
    spark: SparkSession, project: Settings, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    own = copy_of(project, tmp_path)

    def told(*command: str) -> str:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("LAKEHOUSE_HOME", str(own.home))
            typer.main.get_command(cli.app)(list(command), standalone_mode=False)
        return capsys.readouterr().out

    shown = told("rebuild", ORDERS.gold_table)
    assert "4 of 4 rows that differ" in shown
    assert "All of them, before and after: gold.shadow_orders" in shown
    assert [row["line_item_id"] for row in in_shadow(own)] == [1, 2, 3, 5]
    assert "rows that differ" not in told("backfill", "--from", "2031-01-01", "--dry-run")
    assert in_shadow(own) == []


@pytest.mark.parametrize(
    ("scope", "text"),
    [
        (Scope(since=date(2026, 1, 1), until=date(2026, 1, 1)), "2026-01-01"),
        (Scope(since=date(2026, 1, 1), until=date(2026, 1, 3)), "2026-01-01 to 2026-01-03"),
        (Scope(since=date(2026, 1, 1)), "2026-01-01 to the last day"),
        (Scope(), "all days"),
        (Scope(entity="users", key="123"), "users:123"),
    ],
)
def test_a_scope_is_named_as_people_ask_for_it(scope: Scope, text: str) -> None:
    assert str(scope) == text
