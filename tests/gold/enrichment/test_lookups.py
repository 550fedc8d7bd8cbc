from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from pulsar_lakehouse.domains.shop.declarations.items import ITEMS
from pulsar_lakehouse.domains.shop.declarations.orders import ORDERS
from pulsar_lakehouse.domains.shop.declarations.users import USERS
from pulsar_lakehouse.gold.enrichment.declaration import Lookup
from pulsar_lakehouse.gold.enrichment.lookups import look_up, with_key, with_missing, with_state, with_survivor
from pulsar_lakehouse.gold.enrichment.survivors import read_merges, ways_of
from pulsar_lakehouse.limits import FEW
from pulsar_lakehouse.tables.lake import Lake
from tests.lake import own_home
from tests.messages import at

LOOKUPS = (
    Lookup(name="user", entity=USERS, on="user_id", merged_into="into"),
    Lookup(name="item", entity=ITEMS, on="item_id"),
)


def test_state_that_is_not_there_or_was_deleted_can_not_be_used(spark: SparkSession) -> None:
    """Item 2 was deleted at the very moment of its order."""
    facts = spark.createDataFrame([(1, 100), (2, 100), (3, 100), (4, 100)], "_item_key INT, created_at INT")
    state = spark.createDataFrame([(1, None), (2, 100), (3, 101)], "id INT, deleted_at INT")
    joined = facts.transform(with_state, state=state, lookup=LOOKUPS[1], event_time="created_at")
    assert sorted((row._item_key, row.item and row.item.id, row.no_item) for row in joined.collect()) == [
        (1, 1, None),
        (2, 2, "deleted"),
        (3, 3, None),
        (4, None, "missing"),
    ]


def joined(spark: SparkSession, users: list[int], state: DataFrame, lookup: Lookup) -> list[tuple[object, ...]]:
    """By user: the key looked up, the merged keys, the key of the row that is found, and why it can't be used."""
    facts = spark.createDataFrame([(user,) for user in users], "user_id INT").withColumn("created_at", F.lit(at(0)))
    merges = read_merges(state, lookup=lookup)
    ways = ways_of(facts.select(F.col("user_id").alias("_key")), merges=merges, limit=lookup.max_merges)
    keyed = facts.transform(with_key, lookup=lookup).transform(with_survivor, ways=ways, lookup=lookup)
    rows = keyed.transform(with_state, state=state, lookup=lookup, event_time="created_at").collect()
    return sorted((row.user_id, row._user_key, row.user_merged, row.user and row.user.id, row.no_user) for row in rows)


def test_a_merged_key_is_joined_with_its_survivor(spark: SparkSession) -> None:
    """User 8 was merged into 1, 1 into 2, and 2 into 3: three merges.

    4 and 5 form a circle, into which 6 leads. 7 was never merged.
    """
    state = spark.createDataFrame(
        [(1, 2), (2, 3), (3, None), (4, 5), (5, 4), (6, 4), (7, None), (8, 1)], "id INT, into INT"
    ).withColumn("deleted_at", F.lit(None).cast("timestamp"))
    users = [1, 2, 3, 4, 6, 7, 8]
    assert joined(spark, users, state, replace(LOOKUPS[0], max_merges=3)) == [
        (1, 3, [1, 2], 3, None),
        (2, 3, [2], 3, None),
        (3, 3, None, 3, None),
        (4, 4, [4, 5], 4, "merged in a circle"),
        (6, 4, [6, 4, 5], 4, "merged in a circle"),
        (7, 7, None, 7, None),
        (8, 3, [8, 1, 2], 3, None),
    ]
    assert joined(spark, users, state, replace(LOOKUPS[0], max_merges=2)) == [
        (1, 3, [1, 2], 3, None),
        (2, 3, [2], 3, None),
        (3, 3, None, 3, None),
        (4, 4, [4, 5], 4, "merged in a circle"),
        (6, 5, [6, 4], 5, "merged through more than 2 keys"),
        (7, 7, None, 7, None),
        (8, 2, [8, 1], 2, "merged through more than 2 keys"),
    ]


def test_a_row_that_is_merged_and_deleted_is_followed(spark: SparkSession) -> None:
    state = spark.createDataFrame([(1, 2, at(0)), (2, None, None)], "id INT, into INT, deleted_at TIMESTAMP")
    assert joined(spark, [1], state, LOOKUPS[0]) == [(1, 2, [1], 2, None)]


def test_the_merged_keys_stay_where_a_state_that_is_not_required_is_missing(spark: SparkSession) -> None:
    """User 1 was merged into 2, who never came. User 3 was not merged."""
    state = spark.createDataFrame([(1, 2, None), (3, None, None)], "id INT, into INT, deleted_at TIMESTAMP")
    assert joined(spark, [1, 3], state, replace(LOOKUPS[0], required=False)) == [
        (1, 2, [1], None, "missing"),
        (3, 3, None, 3, None),
    ]


@pytest.mark.parametrize("kind", ["BIGINT", "INT", "STRING"])
def test_few_facts_find_what_many_find(lake: Lake, tmp_path: Path, kind: str) -> None:
    """Whatever type their column has. User 1 was merged into 2, and 2 into 3. Nobody is user 9."""
    project, orders = own_home(lake.settings, tmp_path), replace(ORDERS, lookups=ORDERS.lookups[:1])
    Lake(lake.spark, project).create(USERS.table)
    users = lake.spark.createDataFrame([(1, 2), (2, 3), (3, None)], "id BIGINT, parent_user_id BIGINT")
    users = users.withColumn("merged_at", F.when(F.col("parent_user_id").isNotNull(), F.lit(at(0))))
    users.write.format("delta").mode("append").save(project.table_path(USERS.table.name))
    facts = lake.spark.createDataFrame([("1",), ("3",), ("9",), (None,)], "user_id STRING")
    facts = facts.select(F.col("user_id").cast(kind), F.lit(at(5)).alias("created_at"))

    def found(number: int) -> list[tuple[object, ...]]:
        rows = (
            look_up(facts, Lake(lake.spark, project), orders, source=facts, number=number).orderBy("user_id").collect()
        )
        return [(row.user and row.user.id, row.user_merged and [*map(int, row.user_merged)]) for row in rows]

    assert found(4) == found(FEW + 1) == [(None, None), (3, [1, 2]), (3, None), (None, None)]


def test_an_order_waits_for_all_states_that_it_lacks(spark: SparkSession) -> None:
    facts = spark.createDataFrame(
        [(5, None, None, None), (6, [1, 2], "missing", "deleted"), (7, [3], None, "deleted")],
        "_item_key INT, user_merged ARRAY<INT>, no_user STRING, no_item STRING",
    ).withColumn("_user_key", F.lit(9))
    rows = facts.transform(with_missing, lookups=LOOKUPS).collect()
    assert sorted((row._item_key, row.reason, row.missing) for row in rows) == [
        (5, None, None),
        (
            6,
            "user missing, item deleted",
            [("users", "9", "missing", ["1", "2"], None), ("items", "6", "deleted", None, None)],
        ),
        (7, "item deleted", [("items", "7", "deleted", None, None)]),
    ]


def test_state_as_of_a_time_is_the_version_that_was_valid_then(spark: SparkSession) -> None:
    facts = spark.createDataFrame([(1, at(minute)) for minute in (0, 5, 10, 20)], "_item_key INT, created_at TIMESTAMP")
    state = spark.createDataFrame(
        [(1, 5, None, at(5), at(10)), (1, 6, at(10), at(10), at(20)), (1, 7, None, at(20), None)],
        "id INT, price INT, deleted_at TIMESTAMP, valid_from TIMESTAMP, valid_until TIMESTAMP",
    )
    lookup = replace(LOOKUPS[1], join="as_of")
    rows = facts.transform(with_state, state=state, lookup=lookup, event_time="created_at").collect()
    assert sorted((row.created_at.minute, row.item and row.item.price, row.no_item) for row in rows) == [
        (0, None, "missing"),
        (5, 5, None),
        (10, 6, "deleted"),
        (20, 7, None),
    ]
