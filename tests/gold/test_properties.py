"""Whatever comes in whatever rounds, and however often it is read again: gold and quarantine are the oracle's."""

import shutil
from contextlib import suppress
from functools import partial

import pytest
from hypothesis import HealthCheck, Phase, given
from hypothesis import settings as examples
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from gold.conservation import balance_facts
from gold.orders import ORDERS
from gold.survivors import Merge, follow
from jobs.pipeline import ENRICHMENTS, ENTITIES
from jobs.steps import enriching, merging
from jobs.streams import catch_up
from lakehouse.errors import LakehouseError
from lakehouse.settings import Settings
from tests.crashes import FIRST_AND_LAST, PLACING, SILVER, fail_after
from tests.lake import expected, land_literally, own_home, tables
from tests.messages import at, item, millis, order, tombstone, user
from tests.oracle import Oracle

MOMENTS, IDS = st.integers(0, 20), st.integers(1, 4)
MESSAGES = st.one_of(
    st.builds(partial(user), IDS, when=MOMENTS, late=MOMENTS),
    st.builds(partial(user), IDS, when=MOMENTS, mergedAt=st.just(millis(at(0))), parentUserId=IDS),
    st.builds(partial(user), IDS, when=MOMENTS, deletedAt=MOMENTS.map(lambda minute: millis(at(minute)))),
    st.builds(partial(tombstone, "users"), IDS.map(str), when=MOMENTS),
    st.builds(partial(item), st.integers(1, 2), when=MOMENTS),
    st.builds(partial(order), st.integers(1, 5), user=IDS, item=st.integers(1, 3), when=MOMENTS, place=st.just(0)),
    st.builds(partial(order), st.integers(1, 5), user=IDS, item=st.just(1), when=MOMENTS, place=st.just(0)),
    st.builds(partial(order), st.integers(1, 5), when=MOMENTS, place=st.just(0), price=st.sampled_from([-0.5, 0.0])),
)
CRASHES = st.sampled_from([None, *SILVER, *PLACING, *FIRST_AND_LAST])
ROUND = st.tuples(st.lists(MESSAGES, min_size=10, max_size=20), st.booleans(), CRASHES)
ROUNDS = st.lists(ROUND, min_size=2, max_size=3)


# The same each time, as few can be afforded; without `derandomize` and with more of them, it searches.
@examples(
    max_examples=3,
    derandomize=True,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    phases=[Phase.generate],
)
@given(rounds=ROUNDS)
def test_the_tables_are_the_oracles_after_each_round(
    spark: SparkSession, settings: Settings, tmp_path_factory: pytest.TempPathFactory, rounds: list
) -> None:
    """Before some rounds the checkpoints are lost, so that all is read again; in some, a batch ends after a write."""
    run = settings.run.model_copy(update={"retries": 0})
    lake = own_home(settings, tmp_path_factory.mktemp("rounds")).model_copy(update={"run": run})
    oracle, place = Oracle(), 0
    for messages, is_lost, crash in rounds:
        placed = []
        for message in messages:
            place += 1
            placed.append(message._replace(position=message.position._replace(entry_id=place)))
        if is_lost:
            shutil.rmtree(lake.checkpoint_root, ignore_errors=True)
        land_literally(spark, lake, placed)
        if crash:
            with pytest.MonkeyPatch.context() as patch, suppress(LakehouseError):
                patch.setattr(*crash, fail_after(getattr(*crash)))
                merge_and_enrich(spark, lake)
        merge_and_enrich(spark, lake)
        assert tables(lake) == expected(oracle.run(placed, again=is_lost))
    assert balance_facts(spark, lake, ORDERS).holds


def merge_and_enrich(spark: SparkSession, lake: Settings) -> None:
    catch_up(lake, merging(spark, lake, ENTITIES))
    catch_up(lake, enriching(spark, lake, ENRICHMENTS))


TIMES = st.tuples(st.integers(0, 5), st.integers(1, 5)).map(lambda time: (time[0], time[0] + time[1]))


@given(st.dictionaries(IDS, st.lists(st.tuples(TIMES, IDS), max_size=3)), IDS)
def test_merges_lead_at_each_time_to_a_key_that_was_not_merged_or_round_in_a_circle(
    drawn: dict[int, list[tuple[tuple[int, int], int]]], key: int
) -> None:
    merges = {key: apart(each) for key, each in drawn.items()}
    ways = list(follow(key, merges=merges))
    for time in range(10):
        found = [(way.survivor, way.merged) for way in ways if way.since <= time < way.until]
        assert found == [way for way in [walk(key, time, merges)] if way[1]]


def apart(drawn: list[tuple[tuple[int, int], int]]) -> list[Merge]:
    """Merges of which no two are at the same time."""
    chosen: list[Merge] = []
    for (since, until), into in drawn:
        if all(until <= other.since or other.until <= since for other in chosen):
            chosen.append(Merge(since, until, into))
    return chosen


def walk(key: int, time: int, merges: dict[int, list[Merge]]) -> tuple[int, tuple[int, ...]]:
    merged: tuple[int, ...] = ()
    while key not in merged:
        into = [merge.into for merge in merges.get(key, ()) if merge.since <= time < merge.until]
        if not into:
            break
        merged, key = (*merged, key), into[0]
    return key, merged
