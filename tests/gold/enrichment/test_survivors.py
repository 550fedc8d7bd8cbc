from time import process_time

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from pulsar_lakehouse.gold.enrichment.survivors import Way, follow, leading_to, merged_among, ways_from, ways_of

KEYS, LIMITS = st.integers(1, 6), st.integers(1, 7)


def test_a_way_ends_at_a_key_that_was_not_merged_or_that_comes_again_or_beyond_the_limit() -> None:
    merges = {1: 2, 2: 3, 4: 5, 5: 4, 6: 4}
    assert [follow(key, merges=merges, limit=2) for key in (1, 2, 3)] == [Way(3, [1, 2]), Way(3, [2]), Way(3, [])]
    assert [follow(key, merges=merges, limit=3) for key in (4, 6)] == [Way(4, [4, 5]), Way(4, [6, 4, 5])]
    assert [follow(key, merges=merges, limit=1) for key in (1, 6)] == [Way(2, [1]), Way(4, [6])]


@given(st.dictionaries(KEYS, KEYS), st.dictionaries(KEYS, KEYS), KEYS, LIMITS)
def test_a_way_stays_as_it_is_until_one_of_its_keys_changes(
    merges: dict[int, int], others: dict[int, int], key: int, limit: int
) -> None:
    """So it is enough to retry a waiting fact when one of these keys changes."""
    way = follow(key, merges=merges, limit=limit)
    same = {each: merges[each] for each in (*way.merged, way.survivor) if each in merges}
    rest = {each: into for each, into in others.items() if each not in (*way.merged, way.survivor)}
    assert follow(key, merges=rest | same, limit=limit) == way


@given(st.dictionaries(KEYS, KEYS), st.sets(KEYS), LIMITS)
def test_the_keys_that_lead_to_others_are_those_with_one_of_them_on_their_way(
    merges: dict[int, int], keys: set[int], limit: int
) -> None:
    ways = {key: follow(key, merges=merges, limit=limit) for key in {*range(1, 7), *keys}}
    by_way = {key for key, way in ways.items() if keys & {*way.merged, way.survivor}}
    assert leading_to(keys, merges=merges, limit=limit) == by_way


@pytest.mark.parametrize("length", [100_000, 10_000])
def test_long_ways_cost_no_more_than_many(length: int) -> None:
    """100,000 merges in circles of this length. To follow each of them to its end would take days."""
    merges = {key: key + 1 if (key + 1) % length else key + 1 - length for key in range(100_000)}
    began = process_time()
    ways = [follow(key, merges=merges, limit=100) for key in merges]
    assert len(leading_to(merges, merges=merges, limit=100)) == 100_000
    assert process_time() - began < 10
    assert {len(way.merged) for way in ways} == {min(length, 100)}


@pytest.mark.parametrize("merges", [{1: 2, 2: 3, 4: 5, 5: 4, 6: 4}, {}])
def test_many_keys_have_the_ways_of_few(spark: SparkSession, merges: dict[int, int]) -> None:
    keys = [1, 2, 2, 3, 6, 7]
    table = pa.table({"_key": pa.array(merges, pa.int64()), "_into": pa.array(merges.values(), pa.int64())})
    few = ways_from(merged_among(pa.chunked_array([keys], pa.int64()), table), merges=table, limit=2)
    many = ways_of(spark.createDataFrame([(key,) for key in keys], "_key BIGINT"), merges=table, limit=2)
    assert many.sort_by("_key") == few.sort_by("_key")
