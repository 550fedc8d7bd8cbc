"""What `lakehouse trace` tells about messages, from real tables and their logs."""

import json
import os
import re
import shutil
from datetime import UTC, datetime
from pathlib import Path

import pyarrow.compute as pc
import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from pulsar_lakehouse.domains.shop.declarations.orders import ORDERS
from pulsar_lakehouse.domains.shop.declarations.users import USERS
from pulsar_lakehouse.errors import ConfigurationError
from pulsar_lakehouse.gold.enrichment.declaration import BACKFILLS
from pulsar_lakehouse.jobs.forget import forget
from pulsar_lakehouse.jobs.retention import states
from pulsar_lakehouse.jobs.snapshots import create, restore
from pulsar_lakehouse.jobs.trace import Event, trace_entity, trace_facts
from pulsar_lakehouse.settings import Settings
from pulsar_lakehouse.tables.direct import append_values
from pulsar_lakehouse.tables.lake import Lake
from pulsar_lakehouse.tables.stored import dataset_of, stored_table
from tests.jobs.test_maintenance import follow
from tests.lake import land_literally, own_home
from tests.messages import order
from tests.s3 import BUCKET, Server, in_store
from tests.shop import SHOP


def told(events: list[Event]) -> list[tuple[str, str, str]]:
    """The table, the message and what happened, without how long a fact waited and the seconds of times."""

    def steady(what: str) -> str:
        return re.sub(r"after \d:\d\d:\d\d$", "after a moment", re.sub(r"(\d\d:\d\d):00", r"\1", what))

    return [(each.table, each.message, steady(each.what)) for each in events]


def test_an_order_its_duplicate_and_its_correction(seen: Settings) -> None:
    user_1 = "user 1 as of 2026-01-01 00:00 (7/0/0, landed 2026-01-01 00:00)"
    item_then = "item 1 as of 2026-01-01 00:00 (7/0/0, landed 2026-01-01 00:00)"
    item_now = "item 1 as of 2026-01-01 00:05 (7/1/0, landed 2026-01-01 00:05)"
    assert told(trace_facts(seen, ORDERS, ["1", "1"])) == [
        ("bronze.orders", "0/7/1/0", "landed, published at 2026-01-01 00:10 by test"),
        ("gold.enriched_orders", "0/7/1/0", f"enriched: {user_1}, {item_then}"),
        ("bronze.orders", "0/7/4/0", "landed, published at 2026-01-01 00:11 by test"),
        ("quarantine.duplicate_orders", "0/7/4/0", "a duplicate of 0/7/1/0"),
        ("gold.enriched_orders", "0/7/1/0", f"corrected: {item_now} instead of {item_then}"),
    ]


def test_an_order_that_waits_for_its_user(seen: Settings) -> None:
    user_2 = "user 2 as of 2026-01-01 00:20 (7/1/0, landed 2026-01-01 00:20)"
    item_1 = "item 1 as of 2026-01-01 00:05 (7/1/0, landed 2026-01-01 00:05)"
    assert told(trace_facts(seen, ORDERS, ["1", "2"])) == [
        ("bronze.orders", "0/7/2/0", "landed, published at 2026-01-01 00:10 by test"),
        ("quarantine.waiting_orders", "0/7/2/0", "waits for users 2: user missing"),
        ("gold.enriched_orders", "0/7/2/0", f"enriched: {user_2}, {item_1}"),
        ("quarantine.waiting_orders", "0/7/2/0", "no longer waits, after a moment"),
    ]


def test_a_malformed_order_is_found_by_its_payload(seen: Settings) -> None:
    assert told(trace_facts(seen, ORDERS, ["1", "3"])) == [
        ("bronze.orders", "0/7/3/0", "landed, published at 2026-01-01 00:10 by test"),
        ("quarantine.malformed", "0/7/3/0", "malformed: fails price_is_an_amount"),
    ]


def test_an_order_that_was_not_enriched_yet(seen: Settings, tmp_path: Path) -> None:
    """It is found by its payload, in what landed after the last batch."""
    shutil.copytree(seen.home, tmp_path, dirs_exist_ok=True)
    copy, bronze = own_home(seen, tmp_path), ORDERS.topic.bronze_table
    before = trace_facts(copy, ORDERS, ["1", "1"])
    [message] = dataset_of(stored_table(copy, bronze)).to_table(filter=pc.field("entry_id") == 4).to_pylist()
    append_values(copy, bronze, [{**message, "entry_id": 9}])
    landed = ("bronze.orders", "0/7/9/0", "landed, published at 2026-01-01 00:11 by test")
    assert sorted(told(trace_facts(copy, ORDERS, ["1", "1"]))) == sorted([*told(before), landed])


@pytest.mark.parametrize("key", [["1"], ["1", "2"], ["1", "3"]])
def test_without_a_checkpoint_it_tells_the_same(seen: Settings, tmp_path: Path, key: list[str]) -> None:
    shutil.copytree(seen.home, tmp_path, dirs_exist_ok=True)
    copy = own_home(seen, tmp_path)
    shutil.rmtree(copy.checkpoint_path(ORDERS.gold_table))
    assert trace_facts(copy, ORDERS, key) == trace_facts(seen, ORDERS, key)


def test_the_messages_of_a_user(seen: Settings) -> None:
    assert told(trace_entity(seen, USERS, ["2"])) == [
        ("bronze.users", "0/7/1/0", "landed, published at 2026-01-01 00:20 by test"),
        ("silver.users_history", "0/7/1/0", "valid from 2026-01-01 00:20 until further notice"),
        ("silver.users", "0/7/1/0", "the latest state, as of 2026-01-01 00:20"),
        ("bronze.users", "0/7/2/0", "a tombstone landed, published at 2026-01-01 00:05 by test"),
        ("silver.users_history", "0/7/2/0", "valid from 2026-01-01 00:05 until 2026-01-01 00:20"),
    ]


def test_fewer_values_than_key_columns_stand_for_all_others(seen: Settings) -> None:
    assert {each.message for each in trace_facts(seen, ORDERS, ["1"])} == {f"0/7/{place}/0" for place in range(1, 6)}


def test_a_value_that_no_key_can_have(seen: Settings) -> None:
    with pytest.raises(ConfigurationError, match=r"^x: invoice_id is of type int64, and this is no value of it$"):
        trace_facts(seen, ORDERS, ["x"])


def test_a_history_begins_where_all_files_are_there(seen: Settings, tmp_path: Path) -> None:
    shutil.copytree(seen.home, tmp_path, dirs_exist_ok=True)
    copy = own_home(seen, tmp_path)
    DeltaTable(copy.table_path(ORDERS.gold_table)).vacuum(0, dry_run=False, enforce_retention_duration=False)
    [enriched] = [each for each in trace_facts(copy, ORDERS, ["1", "1"]) if each.table == ORDERS.gold_table]
    assert enriched.what.startswith("already there when the history begins: enriched: user 1")


def test_a_backfill(seen: Settings, tmp_path: Path) -> None:
    shutil.copytree(seen.home, tmp_path, dirs_exist_ok=True)
    copy = own_home(seen, tmp_path)
    asked = {"request": "1", "event": "requested", "topic": "orders", "at": datetime(2026, 1, 2, tzinfo=UTC)}
    done = {**asked, "event": "done", "at": datetime.now(UTC)}
    append_values(copy, BACKFILLS.name, [{**asked, "requested_by": "ada", "note": "a new price"}, done])
    enriched, *_ = [each for each in trace_facts(copy, ORDERS, ["1", "1"]) if each.table == ORDERS.gold_table]
    assert enriched.what.startswith("enriched by the backfill of ada, 2026-01-02 00:00:00, a new price: user 1")


def test_an_erasure(spark: SparkSession, seen: Settings, tmp_path: Path) -> None:
    """Of the rows that stay, nothing is told, though they are in other files now."""
    shutil.copytree(seen.home, tmp_path, dirs_exist_ok=True)
    copy = own_home(seen, tmp_path)
    before = trace_facts(copy, ORDERS, ["1"])
    forget(Lake(spark, copy), SHOP, USERS, "2", now=False)
    assert told(trace_facts(copy, ORDERS, ["1"])[len(before) :]) == [
        ("bronze.orders", "0/7/2/0", "removed, by an erasure"),
        ("gold.enriched_orders", "0/7/2/0", "left gold, by an erasure"),
    ]
    DeltaTable(copy.table_path(ORDERS.gold_table)).vacuum(0, dry_run=False, enforce_retention_duration=False)
    assert [each.what for each in trace_facts(copy, ORDERS, ["1", "1"]) if each.what.endswith("erasure")] == []


def test_a_restore(spark: SparkSession, seen: Settings, tmp_path: Path) -> None:
    shutil.copytree(seen.home, tmp_path, dirs_exist_ok=True)
    copy = own_home(seen, tmp_path)
    snapshot = create(Lake(spark, copy), SHOP, "before")
    land_literally(Lake(spark, copy), [order(2, place=8, user=3), order(1, place=9)])
    follow(Lake(spark, copy))
    before = trace_facts(copy, ORDERS, ["1"])
    list(restore(Lake(spark, copy), SHOP, snapshot))
    assert sorted(told(trace_facts(copy, ORDERS, ["1"])[len(before) :])) == [
        ("quarantine.duplicate_orders", "0/7/8/0", "no longer a duplicate of 0/7/2/0, by a restore of before"),
        ("quarantine.duplicate_orders", "0/7/9/0", "no longer a duplicate of 0/7/1/0, by a restore of before"),
        ("quarantine.malformed", "0/7/3/0", "left quarantine, by a restore of before"),
    ]


def test_of_tables_in_an_object_store_it_tells_the_same(seen: Settings, store: Server) -> None:
    objects = store.folder / "objects" / BUCKET / "seen"
    shutil.copytree(seen.warehouse_root, objects)
    shutil.copytree(seen.checkpoint_root, objects / ".checkpoints")
    there = in_store(seen, store.url, "seen")
    assert trace_facts(there, ORDERS, ["1"]) == trace_facts(seen, ORDERS, ["1"])
    assert trace_entity(there, USERS, ["2"]) == trace_entity(seen, USERS, ["2"])
    assert [(each.purpose, each.rows) for each in states(there)] == [(each.purpose, each.rows) for each in states(seen)]


def test_what_was_published(seen: Settings, tmp_path: Path) -> None:
    """The topic began with the rows of the first publication, and got each change of a later batch."""
    shutil.copytree(seen.home, tmp_path, dirs_exist_ok=True)
    copy, topic = own_home(seen, tmp_path), str(ORDERS.publish_to)
    changes = [each for each in trace_facts(copy, ORDERS, ["1", "1"]) if each.table == ORDERS.gold_table]
    gold = DeltaTable(copy.table_path(ORDERS.gold_table))
    offset = {"reservoirId": str(gold.metadata().id), "reservoirVersion": gold.version(), "index": 0}
    checkpoint = Path(copy.checkpoint_path(f"published.{topic}"))
    for file, text in (("metadata", "{}"), ("commits/0", "v1\n{}"), ("offsets/0", f"v1\n{{}}\n{json.dumps(offset)}")):
        (checkpoint / file).parent.mkdir(parents=True, exist_ok=True)
        (checkpoint / file).write_text(text)
    between = (changes[0].at.timestamp() + changes[1].at.timestamp()) / 2
    os.utime(checkpoint / "metadata", (between, between))
    assert [event for event in told(trace_facts(copy, ORDERS, ["1", "1"])) if event[0] == topic] == [
        (topic, "0/7/1/0", "published under the key 1-1: the row"),
        (topic, "0/7/1/0", "published under the key 1-1: the row"),
    ]
