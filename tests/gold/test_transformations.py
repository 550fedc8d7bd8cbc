from pyspark.sql import SparkSession

from gold.enrich import find_repeats, waiting_for, with_is_in_gold, with_missing, with_state
from gold.enrichment import Lookup

LOOKUPS = (Lookup(name="user", entity="users", on="user_id"), Lookup(name="item", entity="items", on="item_id"))


def test_a_repeat_is_of_what_is_held_else_of_the_first_to_come(spark: SparkSession) -> None:
    """Order 1 comes twice; 2 is held; 3 is read again, and comes once more; 4 comes once."""
    facts = spark.createDataFrame(
        [(1, 20, "b"), (1, 10, "c"), (2, 20, "d"), (3, 5, "e"), (3, 20, "f"), (4, 20, "g")],
        "line INT, publish_time INT, position STRING",
    )
    held = spark.createDataFrame([(2, "a"), (3, "e"), (5, "h")], "line INT, position STRING")
    repeats = facts.transform(find_repeats, held=held, keys=["line"])
    assert sorted((row.line, row.position, row.duplicate_of) for row in repeats.collect()) == [
        (1, "b", "c"),
        (2, "d", "a"),
        (3, "e", None),
        (3, "f", "e"),
    ]


def test_what_is_in_gold_and_still_waits_makes_one_repeat(spark: SparkSession) -> None:
    """A crash between the two tables leaves an order in both."""
    facts = spark.createDataFrame([(1, 20, "b")], "line INT, publish_time INT, position STRING")
    held = spark.createDataFrame([(1, "a"), (1, "a")], "line INT, position STRING")
    repeats = facts.transform(find_repeats, held=held, keys=["line"])
    assert [tuple(row) for row in repeats.collect()] == [(1, 20, "b", "a")]


def test_state_that_is_not_there_or_was_deleted_can_not_be_used(spark: SparkSession) -> None:
    """User 2 was deleted in the very moment of its order."""
    facts = spark.createDataFrame([(1, 100), (2, 100), (3, 100), (4, 100)], "user_id INT, created_at INT")
    state = spark.createDataFrame([(1, None), (2, 100), (3, 101)], "id INT, deleted_at INT")
    joined = facts.transform(with_state, state=state, lookup=LOOKUPS[0], occurred_at="created_at")
    assert sorted((row.user_id, row.user and row.user.id, row.no_user) for row in joined.collect()) == [
        (1, 1, None),
        (2, 2, "deleted"),
        (3, 3, None),
        (4, None, "missing"),
    ]


def test_the_first_lookup_without_state_is_what_an_order_waits_for(spark: SparkSession) -> None:
    facts = spark.createDataFrame(
        [(1, 5, None, None), (2, 6, "missing", "deleted"), (3, 7, None, "deleted")],
        "user_id INT, item_id INT, no_user STRING, no_item STRING",
    )
    rows = facts.transform(with_missing, lookups=LOOKUPS).collect()
    assert sorted((row.user_id, row.reason, row.missing_entity, row.missing_key) for row in rows) == [
        (1, None, None, None),
        (2, "missing", "users", "2"),
        (3, "deleted", "items", "7"),
    ]


def test_only_those_wake_whose_own_key_has_changed(spark: SparkSession) -> None:
    waiting = spark.createDataFrame(
        [(1, "users", "5"), (2, "items", "5"), (3, "users", "6")],
        "line INT, missing_entity STRING, missing_key STRING",
    )
    changes = spark.createDataFrame(
        [("users", "5"), ("users", "5"), (None, None)], "changed_entity STRING, changed_key STRING"
    )
    assert [row.line for row in waiting.transform(waiting_for, changes=changes).collect()] == [1]


def test_what_woke_before_is_known_to_be_in_gold(spark: SparkSession) -> None:
    woken = spark.createDataFrame(
        [(1, "a", "missing"), (2, "b", "missing")], "line INT, position STRING, reason STRING"
    )
    in_gold = spark.createDataFrame([(1, "a")], "line INT, position STRING")
    rows = woken.transform(with_is_in_gold, in_gold=in_gold, columns=["line", "position", "publish_time"]).collect()
    assert sorted((row.line, row.position, row.is_woken, row.is_in_gold) for row in rows) == [
        (1, "a", True, True),
        (2, "b", True, False),
    ]
