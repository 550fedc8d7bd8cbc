from dataclasses import replace
from datetime import date

from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from pulsar_lakehouse.domains.shop.declarations.orders import ORDERS
from pulsar_lakehouse.gold.enrichment.duplicates import find_duplicates, repeated_keys
from tests.searching import few

FACTS, HELD = "line INT, publish_time INT, position STRING, day DATE", "line INT, position STRING, day DATE"
LINES = replace(ORDERS, columns="line", keys=("line",), day="day", dedup_days=7, lookups=(), checks={})


def day(number: int) -> date:
    return date(2026, 1, number)


def test_a_repeat_is_of_what_is_held_else_of_the_first_to_come(spark: SparkSession) -> None:
    """Order 1 comes twice; 2 is in a table already; 3 too, and is read again and comes once more; 4 comes once."""
    rows = [(1, 20, "b"), (1, 10, "c"), (2, 20, "d"), (3, 5, "e"), (3, 20, "f"), (4, 20, "g")]
    facts = spark.createDataFrame([(*row, day(1)) for row in rows], FACTS)
    held = spark.createDataFrame([(2, "a", day(1)), (3, "e", day(1)), (5, "h", day(1))], HELD)
    duplicates = facts.transform(find_duplicates, placed=held, enrichment=LINES)
    assert sorted((row.line, row.position, row.duplicate_of) for row in duplicates.collect()) == [
        (1, "b", "c"),
        (2, "d", "a"),
        (3, "e", None),
        (3, "f", "e"),
    ]


def test_only_keys_that_come_twice_or_are_placed_can_have_duplicates(spark: SparkSession) -> None:
    facts = spark.createDataFrame([(1, "a"), (1, "b"), (2, "c"), (3, "d")], "line INT, position STRING")
    placed = spark.createDataFrame([(3, "e")], "line INT, position STRING")
    rows = repeated_keys(facts, placed=placed, keys=["line"]).collect()
    assert sorted(row.line for row in rows) == [1, 3]


def test_what_is_in_gold_and_still_waits_makes_one_repeat(spark: SparkSession) -> None:
    """A crash between the two writes leaves an order in both tables."""
    facts = spark.createDataFrame([(1, 20, "b", day(1))], FACTS)
    held = spark.createDataFrame([(1, "a", day(1)), (1, "a", day(1))], HELD)
    duplicates = facts.transform(find_duplicates, placed=held, enrichment=LINES)
    assert [tuple(row) for row in duplicates.collect()] == [(1, 20, "b", day(1), "a")]


def test_what_is_held_itself_duplicates_nothing_though_its_keys_are_held_twice(spark: SparkSession) -> None:
    """Order 1 came again too late to be a duplicate, so both are in gold. Both are read again, and a third comes."""
    facts = spark.createDataFrame([(1, 10, "a", day(1)), (1, 20, "b", day(9)), (1, 30, "c", day(8))], FACTS)
    held = spark.createDataFrame([(1, "a", day(1)), (1, "b", day(9))], HELD)
    duplicates = facts.transform(find_duplicates, placed=held, enrichment=LINES)
    assert sorted((row.position, row.duplicate_of) for row in duplicates.collect()) == [
        ("a", None),
        ("b", None),
        ("c", "a"),
    ]


def test_of_several_firsts_the_one_that_is_held_is_repeated_else_the_first_to_come(spark: SparkSession) -> None:
    """Facts of days 1 and 9 are too far apart to repeat each other, and one of day 5 repeats one of them."""
    facts = spark.createDataFrame(
        [
            (1, 10, "b", day(9)),
            (1, 20, "a", day(1)),
            (1, 30, "c", day(5)),
            (2, 10, "d", day(9)),
            (2, 30, "e", day(5)),
            (3, 30, "f", day(5)),
        ],
        FACTS,
    )
    held = spark.createDataFrame([(2, "g", day(1)), (3, "i", day(1)), (3, "h", day(9))], HELD)
    duplicates = facts.transform(find_duplicates, placed=held, enrichment=LINES)
    assert sorted((row.position, row.duplicate_of) for row in duplicates.collect()) == [
        ("c", "b"),
        ("e", "g"),
        ("f", "h"),
    ]


def test_what_was_malformed_until_a_retry_repeats_what_came_after_it(spark: SparkSession) -> None:
    retried = spark.createDataFrame([(1, 10, "a", day(1))], FACTS)
    held = spark.createDataFrame([(1, "b", day(1))], HELD)
    duplicates = retried.transform(find_duplicates, placed=held, enrichment=LINES)
    assert [tuple(row) for row in duplicates.collect()] == [(1, 10, "a", day(1), "b")]


DAYS = st.integers(1, 30)


@few(10)
@given(st.lists(st.tuples(st.integers(1, 3), DAYS), min_size=12, max_size=40), st.integers(0, 40))
def test_a_fact_is_a_duplicate_within_days_whatever_came_in_one_batch(
    spark: SparkSession, drawn: list[tuple[int, int]], held: int
) -> None:
    """Facts with the same keys are no duplicates if they are far apart in time. The first `held` were placed before."""
    firsts: list[tuple[int, int, int]] = []
    expected: dict[int, int] = {}
    for position, (line, number) in enumerate(drawn):
        near = [place for other, there, place in firsts if other == line and abs(number - there) <= 7]
        if near:
            expected[position] = near[0]
        else:
            firsts.append((line, number, position))
    facts = [(line, place, f"{place:02}", day(number)) for place, (line, number) in enumerate(drawn) if place >= held]
    placed = [(line, f"{place:02}", day(number)) for line, number, place in firsts if place < held]
    duplicates = spark.createDataFrame(facts, FACTS).transform(
        find_duplicates, placed=spark.createDataFrame(placed, HELD), enrichment=LINES
    )
    assert {int(row.position): int(row.duplicate_of) for row in duplicates.collect()} == {
        position: first for position, first in expected.items() if position >= held
    }
