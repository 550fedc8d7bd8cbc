from dataclasses import replace
from datetime import UTC, datetime

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from gold.enrich import changes_of, judged_again, outdated_by, waiting_for
from gold.enrichment import Lookup
from gold.judging import find_repeats, with_missing, with_state, with_survivor
from gold.orders import ORDERS
from tests.messages import at

LOOKUPS = (
    Lookup(name="user", entity="users", on="user_id", merged_into="into"),
    Lookup(name="item", entity="items", on="item_id"),
)


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


def test_what_is_held_itself_repeats_nothing_though_its_keys_are_held_twice(spark: SparkSession) -> None:
    """Order 1 came again after the horizon, so both are in gold; now they are read again, and once more come anew."""
    facts = spark.createDataFrame(
        [(1, 10, "a"), (1, 20, "b"), (1, 30, "c")], "line INT, publish_time INT, position STRING"
    )
    held = spark.createDataFrame([(1, "a"), (1, "b")], "line INT, position STRING")
    repeats = facts.transform(find_repeats, held=held, keys=["line"])
    assert sorted((row.position, row.duplicate_of) for row in repeats.collect()) == [
        ("a", None),
        ("b", None),
        ("c", "a"),
    ]


def test_state_that_is_not_there_or_was_deleted_can_not_be_used(spark: SparkSession) -> None:
    """User 2 was deleted in the very moment of its order."""
    facts = spark.createDataFrame([(1, 100), (2, 100), (3, 100), (4, 100)], "_item_key INT, created_at INT")
    state = spark.createDataFrame([(1, None), (2, 100), (3, 101)], "id INT, deleted_at INT")
    joined = facts.transform(with_state, state=state, lookup=LOOKUPS[1], occurred_at="created_at")
    assert sorted((row._item_key, row.item and row.item.id, row.no_item) for row in joined.collect()) == [
        (1, 1, None),
        (2, 2, "deleted"),
        (3, 3, None),
        (4, None, "missing"),
    ]


def test_a_merged_key_is_joined_with_its_survivor(spark: SparkSession) -> None:
    """1 was merged into 2, that into 3; 4 and 5 go round in a circle, and 6 leads into it; 7 was never merged."""
    facts = spark.createDataFrame([(1,), (2,), (3,), (4,), (6,), (7,)], "user_id INT")
    state = spark.createDataFrame(
        [(1, 2, None), (2, 3, None), (3, None, None), (4, 5, None), (5, 4, None), (6, 4, None), (7, None, None)],
        "id INT, into INT, deleted_at TIMESTAMP",
    )
    lookup = LOOKUPS[0]
    facts = facts.withColumn("created_at", F.lit(at(0)))
    keyed = facts.transform(
        with_survivor, keys=facts.select("user_id"), state=state, lookup=lookup, occurred_at="created_at"
    )
    joined = keyed.transform(with_state, state=state, lookup=lookup, occurred_at="created_at")
    assert sorted((row.user_id, row._user_key, row.user_merged, row.no_user) for row in joined.collect()) == [
        (1, 3, [1, 2], None),
        (2, 3, [2], None),
        (3, 3, None, None),
        (4, 4, [4, 5], "merged in a circle"),
        (6, 4, [6, 4, 5], "merged in a circle"),
        (7, 7, None, None),
    ]


def test_the_first_lookup_without_state_is_what_an_order_waits_for(spark: SparkSession) -> None:
    facts = spark.createDataFrame(
        [(5, None, None, None), (6, [1, 2], "missing", "deleted"), (7, [3], None, "deleted")],
        "_item_key INT, user_merged ARRAY<INT>, no_user STRING, no_item STRING",
    ).withColumn("_user_key", F.lit(9))
    rows = facts.transform(with_missing, lookups=LOOKUPS).collect()
    assert sorted(
        (row._item_key, row.reason, row.missing_entity, row.missing_key, row.missing_merged) for row in rows
    ) == [
        (5, None, None, None, None),
        (6, "missing", "users", "9", ["1", "2"]),
        (7, "deleted", "items", "7", None),
    ]


def test_state_as_of_a_time_is_the_version_that_was_valid_then(spark: SparkSession) -> None:
    """User 1 was merged into 2 from minute 10 on, and 2 into 3 in the minutes from 20 to 30."""
    facts = spark.createDataFrame(
        [(1, at(minute)) for minute in (0, 5, 10, 20, 30)], "user_id INT, created_at TIMESTAMP"
    )
    state = spark.createDataFrame(
        [
            (1, None, None, at(5), at(10)),
            (1, 2, None, at(10), None),
            (2, None, None, at(0), at(20)),
            (2, 3, None, at(20), at(30)),
            (2, None, None, at(30), None),
            (3, None, None, at(0), None),
        ],
        "id INT, into INT, deleted_at TIMESTAMP, valid_from TIMESTAMP, valid_until TIMESTAMP",
    )
    lookup = replace(LOOKUPS[0], join="as_of")
    keyed = facts.transform(
        with_survivor, keys=facts.select("user_id"), state=state, lookup=lookup, occurred_at="created_at"
    )
    rows = keyed.transform(with_state, state=state, lookup=lookup, occurred_at="created_at").collect()
    assert sorted((row.created_at.minute, row.user and row.user.id, row.user_merged, row.no_user) for row in rows) == [
        (0, None, None, "missing"),
        (5, 1, None, None),
        (10, 2, [1], None),
        (20, 3, [1, 2], None),
        (30, 2, [1], None),
    ]


WAITING = """
    position STRING, created_at TIMESTAMP, missing_entity STRING, missing_key STRING, missing_merged ARRAY<STRING>,
    waiting_since TIMESTAMP
"""
CHANGES = """
    changed_entity STRING, changed_key STRING, valid_from TIMESTAMP, valid_until TIMESTAMP, changed_at TIMESTAMP,
    action STRING, action_position STRING
"""


def test_only_those_wake_whose_own_key_has_changed(spark: SparkSession) -> None:
    """Order d waits for user 6, as 5 was merged into that. Order e has waited too long, and f too, but was released.

    Order h was on its way from gold to here.
    """
    now, long_ago = datetime.now(UTC), datetime(2020, 1, 1, tzinfo=UTC)
    waiting = spark.createDataFrame(
        [
            ("a", at(0), "users", "5", None, now),
            ("b", at(0), "items", "5", None, now),
            ("c", at(0), "users", "6", None, now),
            ("d", at(0), "users", "6", ["5"], now),
            ("e", at(0), "users", "5", None, long_ago),
            ("f", at(0), "users", "5", None, long_ago),
            ("g", at(10), "items", "5", None, now),
            ("h", at(0), "items", "6", None, now),
        ],
        WAITING,
    )
    changes = spark.createDataFrame(
        [
            ("users", "5", None, None, None, None, None),
            ("users", "5", None, None, None, None, None),
            ("items", "5", at(5), at(15), None, None, None),
            (None, None, None, None, None, "release", "f"),
        ],
        CHANGES,
    )
    outdated = spark.createDataFrame([("h",)], "position STRING")
    woken = waiting.transform(waiting_for, changes=changes, outdated=outdated, enrichment=ORDERS)
    assert sorted(row.position for row in woken.collect()) == ["a", "d", "f", "g", "h"]


def test_a_change_of_history_is_a_version_that_was_ever_valid(spark: SparkSession) -> None:
    """Of version 1 the end has moved, as 2 begins there; 3 was replaced at once."""
    feed = spark.createDataFrame(
        [
            (1, at(0), at(5), (at(1),), "update_postimage"),
            (2, at(5), None, (at(2),), "insert"),
            (3, at(5), at(5), (at(3),), "insert"),
        ],
        """id INT, valid_from TIMESTAMP, valid_until TIMESTAMP, sequence STRUCT<publish_time: TIMESTAMP>,
           _change_type STRING""",
    )
    of_history = feed.transform(changes_of, lookup=replace(LOOKUPS[1], join="as_of")).collect()
    assert [(row.changed_key, row.valid_from.minute, row.valid_until) for row in of_history] == [("2", 5, None)]
    of_latest = feed.drop("valid_from", "valid_until").transform(changes_of, lookup=LOOKUPS[1]).collect()
    assert [(row.changed_key, row.valid_from) for row in of_latest] == [("1", None), ("2", None), ("3", None)]


def test_a_late_version_outdates_the_facts_that_occurred_while_it_was_valid(spark: SparkSession) -> None:
    """User 2 has a version from minute 10 to 20, and one of the day before that came too late for order e."""
    gold = spark.createDataFrame(
        [
            ("a", at(9), None, (2, (0,))),
            ("b", at(10), None, (2, (0,))),
            ("c", at(15), [2], (3, (0,))),
            ("d", at(20), None, (2, (0,))),
            ("e", at(-1000), None, (2, (0,))),
            ("f", at(15), None, (1, (0,))),
        ],
        """position STRING, created_at TIMESTAMP, user_merged ARRAY<INT>,
           user STRUCT<id: INT, sequence: STRUCT<event_time: INT>>""",
    ).withColumn("order_date", F.to_date("created_at"))
    changes = spark.createDataFrame(
        [
            ("users", "2", at(10), at(20), at(1440), None, None),
            ("users", "2", at(-2000), at(-500), at(1440), None, None),
            ("items", "1", at(10), at(20), at(1440), None, None),
        ],
        CHANGES,
    )
    enrichment = replace(
        ORDERS, columns={"created_at": ""}, lookups=(replace(LOOKUPS[0], join="as_of"),), correct_for=1
    )
    outdated = gold.transform(outdated_by, changes=changes, enrichment=enrichment).collect()
    assert sorted((row.position, row.held.user_merged) for row in outdated) == [("b", None), ("c", [2])]


def test_facts_are_judged_again_once_though_they_wait_and_are_in_gold(spark: SparkSession) -> None:
    woken = spark.createDataFrame([(1, "a"), (2, "b")], "line INT, position STRING")
    outdated = spark.createDataFrame([(2, "b", "old"), (3, "c", "old")], "line INT, position STRING, held STRING")
    in_gold = outdated.select("position", "held")
    rows = woken.transform(judged_again, outdated=outdated, in_gold=in_gold, columns=["line", "position"]).collect()
    assert sorted((row.line, row.held, row.is_waiting) for row in rows) == [
        (1, None, True),
        (2, "old", True),
        (3, "old", False),
    ]
