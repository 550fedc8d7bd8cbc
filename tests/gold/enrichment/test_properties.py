"""For any messages in any rounds, however often they are read again: the tables hold what the oracle says."""

import shutil
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import settings as examples
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from declarations.orders import ORDERS
from gold.enrichment.declaration import Enrichment
from jobs.steps import enriching, merging, reconcile_all
from jobs.streams import catch_up
from lakehouse.errors import LakehouseError
from lakehouse.settings import Settings
from tests.crashes import FIRST_AND_LAST, PLACING, SILVER, Write, fail_after
from tests.lake import expected, land_literally, own_home, tables
from tests.messages import at, item, millis, order, tombstone, user
from tests.oracle import Message, Oracle, Position, Row, by_position, id_of
from tests.searching import few
from tests.shop import ENTITIES

MOMENTS, IDS, ITEMS, LINES = st.integers(0, 20), st.integers(1, 6), st.integers(1, 3), st.integers(1, 60)
PRICES = st.sampled_from([1.5, 2.5, 3.5, -1.0])
ORDERED = st.builds(partial(order), LINES, user=IDS, item=ITEMS, when=MOMENTS, place=st.just(0))
PRICED = st.builds(partial(item), ITEMS, PRICES, when=MOMENTS)
MERGED = st.builds(partial(user), IDS, when=MOMENTS, late=MOMENTS, mergedAt=st.just(millis(at(0))), parentUserId=IDS)
MESSAGES = st.one_of(
    st.builds(partial(user), IDS, when=MOMENTS, late=MOMENTS),
    *(MERGED, MERGED),  # the other messages of users undo merges
    st.builds(partial(user), IDS, when=MOMENTS, deletedAt=MOMENTS.map(lambda minute: millis(at(minute)))),
    st.builds(partial(tombstone, "users"), IDS.map(str), when=MOMENTS),
    *(PRICED, PRICED),
    st.builds(partial(tombstone, "items"), ITEMS.map(str), when=MOMENTS),
    *(ORDERED, ORDERED, ORDERED),  # more often than any other message
    st.builds(partial(order), LINES, when=MOMENTS, place=st.just(0), price=st.sampled_from([-0.5, 0.0])),
)
USERS, *OTHERS = ORDERS.lookups
FOLLOWING_TWO = replace(ORDERS, lookups=(replace(USERS, max_merges=2), *OTHERS))
NONE_REQUIRED = replace(
    FOLLOWING_TWO, lookups=tuple(replace(lookup, required=False) for lookup in FOLLOWING_TWO.lookups)
)
THERE_FIRST = [user(1), user(2), user(3), item(1), item(2)]
CRASHES = st.sampled_from([*SILVER, *PLACING, *FIRST_AND_LAST])
Round = tuple[list[Message], bool, Write]
ROUND = st.tuples(st.lists(MESSAGES, min_size=60, max_size=90), st.booleans(), CRASHES)
ROUNDS = st.lists(ROUND, min_size=2, max_size=3)


@pytest.mark.parametrize("orders", [FOLLOWING_TWO, NONE_REQUIRED], ids=["state is required", "no state is required"])
@few(3)
@given(rounds=ROUNDS)
def test_the_tables_are_the_oracles_after_each_round(
    spark: SparkSession,
    settings: Settings,
    tmp_path_factory: pytest.TempPathFactory,
    orders: Enrichment,
    rounds: list[Round],
) -> None:
    """Before some rounds, checkpoints are lost and all is read again. In each, a batch may crash after a write."""
    run = settings.run.model_copy(update={"retries": 0})
    lake = own_home(settings, tmp_path_factory.mktemp("rounds")).model_copy(update={"run": run})
    optional = frozenset(lookup.entity.name for lookup in orders.lookups if not lookup.required)
    oracle, place = Oracle(optional=optional, max_merges=2), 0
    for messages, is_lost, (module, write) in rounds:
        placed = numbered(messages if place else [*THERE_FIRST, *messages], after=place)
        place += len(placed)
        if is_lost:
            shutil.rmtree(lake.checkpoint_root, ignore_errors=True)
        land_literally(spark, lake, placed)
        with pytest.MonkeyPatch.context() as patch, suppress(LakehouseError):
            patch.setattr(module, write, fail_after(getattr(module, write)))
            merge_and_enrich(spark, lake, orders)
        merge_and_enrich(spark, lake, orders)
        assert tables(lake) == expected(oracle.run(placed, again=is_lost))
    assert all(reconciliation.holds for reconciliation in reconcile_all(spark, lake))


def numbered(messages: Iterable[Message], *, after: int = 0) -> list[Message]:
    """The messages, each with its own position."""
    return [
        message._replace(position=message.position._replace(entry_id=place))
        for place, message in enumerate(messages, after + 1)
    ]


@examples(deadline=None)
@given(
    messages=st.lists(MESSAGES, min_size=20, max_size=60),
    cuts=st.lists(st.integers(0, 60), max_size=3),
    as_of=st.frozensets(st.sampled_from(["users", "items"])),
    optional=st.frozensets(st.sampled_from(["users", "items"])),
    max_merges=st.integers(1, 5),
)
def test_which_orders_are_in_gold_does_not_depend_on_what_came_in_which_round(
    messages: list[Message], cuts: list[int], as_of: frozenset[str], optional: frozenset[str], max_merges: int
) -> None:
    """The oracle, with which the tables are compared, has this property. No order comes twice.

    Each order is joined with the same survivor in the end, and with the same state if all joins are as of a time.
    """
    once = {each.key if each.topic == "orders" else index: each for index, each in enumerate(messages)}
    placed = numbered(once.values())
    whole, parts = (Oracle(as_of=as_of, optional=optional, max_merges=max_merges) for _ in range(2))
    whole.run(placed)
    for start, end in pairwise(sorted({0, *cuts, len(placed)})):
        parts.run(placed[start:end])
    if as_of == {"users", "items"}:
        assert by_position(parts.gold) == by_position(whole.gold)
    assert ways(parts.gold) == ways(whole.gold)
    assert positions(parts.waiting) == positions(whole.waiting)


def ways(orders: Iterable[Row]) -> list[tuple[object, ...]]:
    """The user and item that each order is joined with, and the merged users on the way there."""
    return [
        (order["position"], id_of(order["user"]), order.get("user_merged"), id_of(order["item"]))
        for order in by_position(orders)
    ]


def positions(orders: Iterable[Row]) -> set[Position]:
    return {Position(**order["position"]) for order in orders}


def merge_and_enrich(spark: SparkSession, lake: Settings, orders: Enrichment) -> None:
    catch_up(lake, merging(spark, lake, ENTITIES))
    catch_up(lake, enriching(spark, lake, [orders]))
