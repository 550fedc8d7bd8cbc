from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from pulsar_lakehouse.domains.shop.declarations.items import ITEMS
from pulsar_lakehouse.domains.shop.declarations.orders import ORDERS
from pulsar_lakehouse.domains.shop.declarations.users import USERS
from pulsar_lakehouse.errors import ConfigurationError
from pulsar_lakehouse.gold.enrichment.changes import changes_of, losses_by, outdated_by, waiting_for
from pulsar_lakehouse.gold.enrichment.declaration import MISSING, Lookup
from pulsar_lakehouse.gold.enrichment.events import LOSS
from pulsar_lakehouse.limits import FEW
from pulsar_lakehouse.tables.lake import Lake
from tests.lake import own_home
from tests.messages import at

LOOKUPS = (
    Lookup(name="user", entity=USERS, on="user_id", merged_into="into"),
    Lookup(name="item", entity=ITEMS, on="item_id"),
)


WAITING = f"position STRING, created_at TIMESTAMP, missing {MISSING}, waiting_since TIMESTAMP"
EVENTS = """
    changed_entity STRING, changed_key STRING, valid_from TIMESTAMP, valid_until TIMESTAMP, changed_at TIMESTAMP,
    _event STRING, position STRING
"""


def test_only_those_are_retried_whose_own_key_has_changed(spark: SparkSession) -> None:
    """User 5 has changed, twice, and so has what item 5 was in minutes 5 to 15."""

    def state(entity: str, key: str, *merged: str, via: list[tuple[str, str]] | None = None) -> tuple[object, ...]:
        return (entity, key, "missing", list(merged) or None, via)

    now, long_ago = datetime.now(UTC), datetime(2020, 1, 1, tzinfo=UTC)
    user, other_user = state("users", "5"), state("users", "6")
    item, other_item = state("items", "5"), state("items", "6")
    concerned = [
        ("for the user", at(0), [user], now),
        ("for the item, in these minutes", at(10), [item], now),
        ("for another item, and for the user", at(0), [other_item, user], now),
        ("for the user's survivor", at(0), [state("users", "6", "5")], now),
        ("for an item that the user has", at(0), [state("items", "7", via=[("users", "5")])], now),
        ("for the user, too long, but released", at(0), [user], long_ago),
        ("for another item, but outdated in gold", at(0), [other_item], now),
        ("since an older release", at(0), None, now),
    ]
    others = [
        ("for the item, before these minutes", at(0), [item], now),
        ("for another user", at(0), [other_user], now),
        ("for the user, too long", at(0), [user], long_ago),
    ]
    changes = [
        ("users", "5", None, None, None, "change", None),
        ("users", "5", None, None, None, "change", None),
        ("items", "5", at(5), at(15), None, "change", None),
        (None, None, None, None, None, "release", "for the user, too long, but released"),
    ]
    waiting, events = spark.createDataFrame(concerned + others, WAITING), spark.createDataFrame(changes, EVENTS)
    outdated = spark.createDataFrame([("for another item, but outdated in gold",)], "position STRING")
    for number in 4, FEW + 1:  # many events take another plan
        retried = waiting_for(waiting, events=events, number=number, outdated=outdated, enrichment=ORDERS)
        assert {row.position for row in retried.collect()} == {position for position, *_ in concerned}


def test_a_change_of_history_is_a_version_that_was_ever_valid(spark: SparkSession) -> None:
    """The end of a version has moved to where the new one begins."""
    feed = spark.createDataFrame(
        [
            ("ends earlier", at(0), at(5), (at(1),), "update_postimage"),
            ("new", at(5), None, (at(2),), "insert"),
            ("replaced at once", at(5), at(5), (at(3),), "insert"),
        ],
        """id STRING, valid_from TIMESTAMP, valid_until TIMESTAMP, sequence STRUCT<publish_time: TIMESTAMP>,
           _change_type STRING""",
    ).withColumn("_commit_version", F.lit(3))
    of_history = feed.transform(changes_of, lookup=replace(LOOKUPS[1], join="as_of")).collect()
    assert [(row.changed_key, row.valid_from.minute, row.valid_until) for row in of_history] == [("new", 5, None)]


def test_a_latest_state_is_lost_if_its_key_was_deleted_or_merged(spark: SparkSession) -> None:
    """An earlier loss is reported too: user 4 was merged into 1, and no longer is."""
    feed = spark.createDataFrame(
        [
            (1, at(5), None, (at(1),), "insert"),
            (2, None, 1, (at(2),), "update_postimage"),
            (3, None, None, (at(3),), "insert"),
            (3, None, None, (at(2),), "update_preimage"),
            (4, None, 1, (at(1),), "update_preimage"),
            (4, None, None, (at(4),), "update_postimage"),
        ],
        "id INT, deleted_at TIMESTAMP, into INT, sequence STRUCT<publish_time: TIMESTAMP>, _change_type STRING",
    ).withColumn("_commit_version", F.lit(3))
    changes = feed.transform(changes_of, lookup=LOOKUPS[0]).collect()
    assert [(row.changed_key, row.valid_from, row.loss, row.is_before) for row in changes] == [
        ("1", None, (at(5).replace(tzinfo=None), None), False),
        ("2", None, (None, "1"), False),
        ("3", None, None, False),
        ("4", None, (None, "1"), True),
        ("4", None, None, False),
    ]


def test_a_key_that_came_is_a_change_for_facts_that_can_do_without_it(spark: SparkSession) -> None:
    """User 1 came deleted, which was undone in the same batch. User 2 has another name."""
    feed = spark.createDataFrame(
        [
            (1, at(5), (at(1),), "insert"),
            (1, at(5), (at(1),), "update_preimage"),
            (1, None, (at(2),), "update_postimage"),
            (2, None, (at(1),), "update_preimage"),
            (2, None, (at(2),), "update_postimage"),
        ],
        "id INT, deleted_at TIMESTAMP, sequence STRUCT<publish_time: TIMESTAMP>, _change_type STRING",
    ).withColumn("_commit_version", F.lit(3))
    changes = feed.transform(changes_of, lookup=Lookup(entity=USERS, on="user_id", required=False)).collect()
    assert [(row.changed_key, row.loss, row.is_before) for row in changes] == [
        ("1", (None, None), False),
        ("1", (at(5).replace(tzinfo=None), None), True),
        ("1", None, False),
        ("2", None, False),
    ]


def test_a_way_of_merges_that_can_not_be_resolved_is_named(spark: SparkSession) -> None:
    feed = spark.createDataFrame([], "id BIGINT, deleted_at TIMESTAMP, sequence STRUCT<publish_time: TIMESTAMP>")
    with pytest.raises(ConfigurationError, match=r"^lookup user: merged_into: into: \[UNRESOLVED_COLUMN.* `into`"):
        changes_of(feed.withColumns({"_change_type": F.lit("insert"), "_commit_version": F.lit(3)}), lookup=LOOKUPS[0])


def test_deletes_and_merges_concern_the_keys_that_merges_lead_from(lake: Lake, tmp_path: Path) -> None:
    """Merges that end at deleted, missing and present users, or in a circle.

    User 2 was merged into 1, which was deleted at minute 5; 3 and 4 into each other; 5 into 6, which is missing; and
    7 into 8. 10, into which 11 was merged, is no longer merged. 9 has not changed, nor has the merge of 12, unless it
    was undone in another commit than it was made in.
    """
    rows = [(1, at(5), None), (2, None, 1), (3, None, 4), (4, None, 3), (5, None, 6), (7, None, 8), (8, None, None)]
    more = [(9, at(5), None), (10, None, None), (11, None, 10), (12, None, 8)]
    state = lake.spark.createDataFrame([*rows, *more], "id INT, deleted_at TIMESTAMP, into INT")
    own = own_home(lake.settings, tmp_path)
    state.write.format("delta").save(own.table_path(LOOKUPS[0].table))
    changes = lake.spark.createDataFrame(
        [
            *(("1", (at(5), None), False), ("3", (None, "4"), False), ("5", (None, "6"), False)),
            *(("7", (None, "8"), False), ("10", (None, "8"), True)),
            *(("12", (None, "8"), True), ("12", (None, "8"), False)),
        ],
        f"changed_key STRING, loss {LOSS}, is_before BOOLEAN",
    ).withColumns({"changed_at": F.lit(at(9)), "changed_in": F.lit(3)})
    concerned = losses_by(changes, lake=Lake(lake.spark, own), lookup=LOOKUPS[0]).collect()
    found = {row.changed_key: row.valid_from and row.valid_from.minute for row in concerned}
    assert found == {"1": 5, "2": 5, "3": None, "4": None, "5": None, "7": None, "10": None, "11": None}
    assert len(concerned) == len(found)
    assert "12" not in found
    undone = changes.where("changed_key = '12'").withColumn("changed_in", F.when(F.col("is_before"), 4).otherwise(3))
    again = losses_by(undone, lake=Lake(lake.spark, own), lookup=LOOKUPS[0]).collect()
    assert [row.changed_key for row in again] == ["12"]
    alone = losses_by(
        changes.where("changed_key = '1'"), lake=Lake(lake.spark, own), lookup=replace(LOOKUPS[0], merged_into=None)
    )
    assert [(row.changed_key, row.valid_from.minute) for row in alone.collect()] == [("1", 5)]


def test_a_late_version_outdates_the_facts_that_occurred_while_it_was_valid(spark: SparkSession) -> None:
    """Item 2 has a late version from minute 10 to 20, and one of the day before, which came too late for order e."""
    gold = spark.createDataFrame(
        [
            ("a", at(9), 2, (2, (0,))),
            ("b", at(10), 2, (2, (0,))),
            ("c", at(15), 2, (2, (1,))),
            ("d", at(20), 2, (2, (0,))),
            ("e", at(-1000), 2, (2, (0,))),
            ("f", at(15), 1, (1, (0,))),
        ],
        """position STRING, created_at TIMESTAMP, item_id INT,
           item STRUCT<id: INT, sequence: STRUCT<event_time: INT>>""",
    ).withColumn("order_date", F.to_date("created_at"))
    corrections = spark.createDataFrame(
        [
            ("2", at(10), at(20), at(1440), "item"),
            ("2", at(-2000), at(-500), at(1440), "item"),
            ("1", at(10), at(20), at(1440), "user"),
        ],
        "changed_key STRING, valid_from TIMESTAMP, valid_until TIMESTAMP, changed_at TIMESTAMP, join STRING",
    )
    enrichment = replace(
        ORDERS,
        columns="created_at, item_id",
        lookups=(replace(LOOKUPS[1], join="as_of"),),
        correction_days=1,
    )
    outdated = gold.transform(
        outdated_by, corrections=corrections, joins=enrichment.lookups, enrichment=enrichment
    ).collect()
    assert sorted(row.position for row in outdated) == ["b", "c"]


def test_a_loss_outdates_the_facts_of_the_key_from_then_on(spark: SparkSession) -> None:
    """User 2 was deleted at minute 10. User 3 was lost for all times, but fact c is too old to be corrected."""
    gold = spark.createDataFrame(
        [
            ("a", at(9), 2, (2,)),
            ("b", at(10), 2, (5,)),
            ("c", at(-1000), 3, (3,)),
            ("d", at(1), 3, (3,)),
            ("e", at(15), 5, (2,)),
        ],
        "position STRING, created_at TIMESTAMP, user_id INT, user STRUCT<id: BIGINT>",
    ).withColumns({"order_date": F.to_date("created_at"), "user_merged": F.lit(None).cast("array<bigint>")})
    corrections = spark.createDataFrame(
        [("2", at(10), None, at(1440), "user"), ("3", None, None, at(1440), "user")],
        "changed_key STRING, valid_from TIMESTAMP, valid_until TIMESTAMP, changed_at TIMESTAMP, join STRING",
    )
    enrichment = replace(ORDERS, columns="created_at, user_id", lookups=LOOKUPS[:1], correction_days=1)
    outdated = gold.transform(outdated_by, corrections=corrections, joins=LOOKUPS[:1], enrichment=enrichment)
    assert sorted(row.position for row in outdated.collect()) == ["b", "d"]


def test_a_fact_is_outdated_once_by_whatever_lookup_has_its_key(spark: SparkSession) -> None:
    """User 2 was deleted, and item 3 has another version. Fact d has these keys the other way round."""
    gold = spark.createDataFrame(
        [
            ("a", at(9), 2, (2,), 3, (3, (0,))),
            ("b", at(9), 2, (2,), 4, (4, (0,))),
            ("c", at(9), 1, (1,), 3, (3, (0,))),
            ("d", at(9), 3, (3,), 2, (2, (0,))),
            ("e", at(9), 1, None, None, None),
        ],
        """position STRING, created_at TIMESTAMP, user_id INT, user STRUCT<id: INT>,
           item_id INT, item STRUCT<id: INT, sequence: STRUCT<event_time: INT>>""",
    ).withColumns({"order_date": F.to_date("created_at"), "user_merged": F.lit(None).cast("array<int>")})
    corrections = spark.createDataFrame(
        [("2", None, None, at(1440), "user"), ("3", at(5), at(10), at(1440), "item")],
        "changed_key STRING, valid_from TIMESTAMP, valid_until TIMESTAMP, changed_at TIMESTAMP, join STRING",
    )
    lookups = (LOOKUPS[0], replace(LOOKUPS[1], join="as_of"))
    enrichment = replace(ORDERS, columns="created_at, user_id, item_id", lookups=lookups)
    outdated = gold.transform(outdated_by, corrections=corrections, joins=lookups, enrichment=enrichment)
    assert sorted(row.position for row in outdated.collect()) == ["a", "b", "c"]
