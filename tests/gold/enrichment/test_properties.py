"""For any messages in any rounds, however often they are read again: the tables hold what the oracle says."""

import json
import re
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import TypeVar

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import settings as examples
from hypothesis import strategies as st
from pyspark.sql.types import ArrayType, StructType

from pulsar_lakehouse import function
from pulsar_lakehouse.bronze.kinds import reconcile_kinds
from pulsar_lakehouse.domains.shop.declarations.orders import ORDERS
from pulsar_lakehouse.errors import LakehouseError
from pulsar_lakehouse.gold.enrichment import matches as matching
from pulsar_lakehouse.gold.enrichment.declaration import Enrichment, Lookup
from pulsar_lakehouse.gold.enrichment.enrich import enrich
from pulsar_lakehouse.gold.enrichment.match import Match
from pulsar_lakehouse.gold.enrichment.reconciliation import reconcile_facts
from pulsar_lakehouse.gold.enrichment.succession import Succession
from pulsar_lakehouse.jobs.overdue import expire
from pulsar_lakehouse.jobs.steps import as_written, merging
from pulsar_lakehouse.jobs.streams import Stream, catch_up
from pulsar_lakehouse.silver.entity import Entity
from pulsar_lakehouse.silver.reconciliation import reconcile_entity
from pulsar_lakehouse.spark.functions import declare
from pulsar_lakehouse.tables.lake import Lake
from tests.crashes import DUPLICATES, PLACING, SILVER, crash_after
from tests.lake import expected, land_literally, own_home, tables
from tests.messages import at, item, millis, order, tombstone, user
from tests.oracle import Message, Oracle, Position, by_position
from tests.oracle_kinds import Kind, counted
from tests.oracle_lookups import JOINS, Join, Row, text_of
from tests.oracle_lookups import Match as OraclesMatch
from tests.searching import few
from tests.shop import ENTITIES, joins_of, matches_of

Declared = TypeVar("Declared", Entity, Enrichment)
MOMENTS, IDS, ITEMS, LINES = st.integers(0, 20), st.integers(1, 6), st.integers(1, 3), st.integers(1, 60)
PRICES, KINDS = st.sampled_from([1.5, 2.5, 3.5, -1.0]), st.sampled_from(["a", "b"])


def priced(id: int, price: float, kind: str, when: int = 0) -> Message:
    """An item without a message key, as some tests have its category in the key."""
    return item(id, price, when=when, category=kind, createdAt=millis(at(when)))._replace(key=None)


def born(id: int, when: int, late: int, parent: int) -> Message:
    return user(id, when=when, late=late, parentUserId=parent, createdAt=millis(at(when)))


PRICED = st.builds(priced, ITEMS, PRICES, KINDS, MOMENTS)
NAMED = st.sampled_from(["a", "b", None])  # an order that names no category names no item by its category
ORDERED = st.builds(partial(order), LINES, user=IDS, item=ITEMS, itemCategory=NAMED, when=MOMENTS, place=st.just(0))
MERGED = st.builds(partial(user), IDS, when=MOMENTS, late=MOMENTS, mergedAt=st.just(millis(at(0))), parentUserId=IDS)
MESSAGES = st.one_of(
    st.builds(born, IDS, when=MOMENTS, late=MOMENTS, parent=IDS),
    *(MERGED, MERGED),  # the other messages of users undo merges
    st.builds(partial(user), IDS, when=MOMENTS, deletedAt=MOMENTS.map(lambda minute: millis(at(minute)))),
    st.builds(partial(tombstone, "users"), IDS.map(str), when=MOMENTS),
    *(PRICED, PRICED),
    st.builds(partial(tombstone, "items"), ITEMS.map(str), when=MOMENTS),
    st.builds(lambda id, kind, when: tombstone("items", text_of([id, kind]), when=when), ITEMS, KINDS, MOMENTS),
    *(ORDERED, ORDERED, ORDERED),  # more often than any other message
    st.builds(partial(order), LINES, when=MOMENTS, place=st.just(0), price=st.sampled_from([-0.5, 0.0])),
)
USER, ITEM = replace(ORDERS.lookups[0], max_merges=2), ORDERS.lookups[1]
PARENT = replace(USER, name="parent", on="user.parent_user_id")
KIND = replace(ITEM, entity=replace(ITEM.entity, key=("id", "category")), on=("item_id", "item_category"))
PAST = replace(USER, join="as_of", merged_into=None)


def with_lookups(*lookups: Lookup, required: bool = True) -> Enrichment:
    return replace(ORDERS, lookups=tuple(replace(each, required=required) for each in lookups))


FIRST = Match(
    entity=ITEM.entity,
    on="item_category",
    by="category",
    time="created_at",
    within=("-9 minutes", "6 minutes"),
    lateness="1 minute",
    name="near",
)
ALL = Match(
    entity=USER.entity,
    on="user_id",
    by="parent_user_id",
    time="created_at",
    within=("-12 minutes", "12 minutes"),
    each="all",
    required=False,
)
MATCHED = replace(ORDERS, matches=(FIRST, ALL, replace(FIRST, name="left", required=False)))
LOOKUPS = {
    "state is required": with_lookups(USER, KIND),
    "no state is required": with_lookups(USER, ITEM, required=False),
    "through latest rows": with_lookups(replace(USER, merged_into=None), replace(PARENT, merged_into=None), KIND),
    "through rows as of a time": with_lookups(
        PAST, replace(PARENT, join="as_of", merged_into=None), replace(PARENT, name="elder", on="parent.parent_user_id")
    ),
    "matches": replace(with_lookups(USER), matches=(FIRST, ALL)),
    "matches that need not be there": replace(
        with_lookups(), matches=(replace(FIRST, required=False), replace(ALL, each="first", required=True))
    ),
    "through rows that are not required": with_lookups(USER, PARENT, replace(KIND, join="latest"), required=False),
}


@function("line BIGINT, name STRING", returns="STRING")
def labelled(line: pa.Array, name: pa.Array) -> pa.Array:
    """Raises ValueError for each seventh line."""
    if pc.any(pc.equal(pc.subtract(line, pc.multiply(pc.divide(line, 7), 7)), 0)).as_py():
        raise ValueError("no label")
    return pc.binary_join_element_wise(line.cast(pa.string()), name, "-")


@function("name STRING, rank INT", returns="STRING")
def greeted(name: pa.Array, rank: pa.Array) -> pa.Array:
    """Raises ValueError for who was merged into the first or the fourth user."""
    if pc.any(pc.is_in(rank, pa.array([1, 4], pa.int32()))).as_py():
        raise ValueError("no greeting")
    return pc.binary_join_element_wise("dear", name, " ")


GREETED = replace(
    USER.entity, columns={**USER.entity.columns, "called": "upper(greeted(firstName, nullif(parentUserId, -1)))"}
)
FUNCTIONS = {
    "users": lambda row: {"called": upper_greeting(row["first_name"], row["parent_user_id"])},
    "orders": lambda row: {"called": label(row["line_item_id"], row["item_name"])},
}


def upper_greeting(name: str | None, rank: int | None) -> str | None:
    if rank in (1, 4):
        raise ValueError
    return None if name is None else f"DEAR {name.upper()}"


def label(line: int, name: str | None) -> str | None:
    if line % 7 == 0:
        raise ValueError
    return None if name is None else f"{line}-{name}"


@pytest.fixture(autouse=True, scope="module")
def functions() -> Iterator[None]:
    declare([labelled, greeted])
    yield
    declare([])


CALLING = replace(
    with_lookups(replace(USER, entity=GREETED)),
    columns={**ORDERS.columns, "called": "CASE WHEN lineItemId > 0 THEN labelled(lineItemId, itemName) END"},
)
LOOKUPS["functions"] = CALLING


def of_many(declared: Declared) -> Declared:
    """The same facts or state from messages that have many of the former payloads, in an array."""
    fields = StructType().add("lines", ArrayType(declared.topic.fields))
    named = re.compile(rf"\b({'|'.join(declared.topic.fields.names)})\b")
    columns = {name: named.sub(r"row.\1", sql) for name, sql in declared.columns.items()}
    return replace(declared, topic=replace(declared.topic, fields=fields, rows="lines"), columns=columns)


MANY = "many rows in a message"
LOOKUPS[MANY] = of_many(with_lookups(USER, replace(ITEM, entity=of_many(ITEM.entity))))

IN_ONE_TOPIC = "kinds of messages in a topic"
OF_SHOP = (Kind("items", "of", "item"), Kind("orders", "kind", "order", is_by_fields=True))
WHERE = {"items": "message.properties['of'] = 'item'", "orders": "kind = 'order'"}


def of_one_topic(declared: Declared) -> Declared:
    """The same from a topic that has both kinds."""
    name = declared.topic.name
    return replace(declared, topic=replace(declared.topic, topic="shop", where=WHERE[name], kinds=tuple(WHERE.items())))


TOLD = of_many(with_lookups(USER, replace(ITEM, entity=of_one_topic(ITEM.entity))))
KIND_FIRST = StructType().add("kind", "string").add(TOLD.topic.fields[0])
LOOKUPS[IN_ONE_TOPIC] = of_one_topic(replace(TOLD, topic=replace(TOLD.topic, fields=KIND_FIRST)))
BATCHED = {MANY: {"orders": "lines", "items": "lines"}, IN_ONE_TOPIC: {"orders": "lines"}}
"""The topics with many rows in a message, and the field that has them."""
THERE_FIRST = [
    *(user(id, parentUserId=id % 3 + 1) for id in (1, 2, 3)),
    *(priced(id, 1.5, kind) for id in (1, 2) for kind in ("a", "b")),
]
SHORT = {"state is required", "matches", "functions", IN_ONE_TOPIC}
"""What `make test` tries: merges, rows as of a time, keys of two columns, calls, kinds of messages with many rows."""
WRITES = [*SILVER, *PLACING, DUPLICATES]
Round = tuple[list[Message], bool]
# Hypothesis first tries the simplest example. If messages were not unique, that would be one message all the time.
ROUND = st.tuples(st.lists(MESSAGES, min_size=60, max_size=90, unique=True), st.booleans())
ROUNDS = st.lists(ROUND, min_size=3, max_size=3)


@pytest.mark.parametrize(
    "kind", [each if each in SHORT else pytest.param(each, marks=pytest.mark.long) for each in LOOKUPS]
)
@few(1)
@given(rounds=ROUNDS, crash=st.integers(0, len(WRITES) - 1))
def test_the_tables_are_the_oracles_after_each_round(
    lake: Lake,
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
    kind: str,
    rounds: list[Round],
    crash: int,
) -> None:
    """Before some rounds, checkpoints are lost and all is read again. In each, a batch crashes after another write.

    Ten minutes pass between two rounds, in which intervals end.

    Each write is among those of some kind of lookups.
    """
    orders, batches = LOOKUPS[kind], BATCHED.get(kind, {})
    crash = crash + len(rounds) * list(LOOKUPS).index(kind)
    rounds = rounds[:2] if kind == IN_ONE_TOPIC else rounds  # it takes longer than the others
    run = lake.settings.run.model_copy(update={"retries": 0})
    project = own_home(lake.settings, tmp_path_factory.mktemp("rounds")).model_copy(update={"run": run})
    entities = {entity.name: entity for entity in (*ENTITIES, *(each.entity for each in orders.lookups))}
    oracle = Oracle(
        joins=joins_of(orders),
        matches=matches_of(orders),
        keys={name: each.keys for name, each in entities.items()},
        functions=FUNCTIONS if kind == "functions" else {},
        rows=batches,
        kinds={"shop": OF_SHOP} if kind == IN_ONE_TOPIC else {},
    )
    read = [orders.topic, *(entity.topic for entity in entities.values())]
    topics = {topic.landing.name: topic.landing for topic in read}
    landed: list[Message] = []
    place = 0
    merge_and_enrich = partial(
        merge_all_and_enrich, Lake(lake.spark, project), list(entities.values()), orders, Succession()
    )
    for number, (messages, is_lost) in enumerate(rounds, crash):
        now = at(10 * (number - crash))
        monkeypatch.setattr(matching, "now", lambda now=now: now)
        placed = numbered(messages if place else [*THERE_FIRST, *messages], after=place)
        place += len(placed)
        if is_lost:
            shutil.rmtree(project.checkpoint_root, ignore_errors=True)
        placed = batched(placed, batches)
        placed = in_one_topic(placed) if kind == IN_ONE_TOPIC else placed
        landed += placed
        land_literally(Lake(lake.spark, project), placed, list(topics.values()))
        with crash_after(WRITES[number % len(WRITES)]), suppress(LakehouseError):
            merge_and_enrich()
        merge_and_enrich()
        assert tables(project) == expected(oracle.run(placed, again=is_lost, now=now))
    assert all(reconcile_entity(Lake(lake.spark, project), entity).holds for entity in entities.values())
    assert reconcile_facts(Lake(lake.spark, project), orders).holds
    for name, kinds in oracle.kinds.items():
        counts = reconcile_kinds(Lake(lake.spark, project), topics[name], [entities["items"].decoding, orders.decoding])
        assert counts.holds
        assert counts.accounted == counted((each for each in landed if each.topic == name), kinds)


def numbered(messages: Iterable[Message], *, after: int = 0) -> list[Message]:
    """The messages, each with its own position, as if they were of three topics: each has ledgers of its own."""
    return [
        message._replace(position=message.position._replace(ledger_id=7 + place % 3, entry_id=place))
        for place, message in enumerate(messages, after + 1)
    ]


def batched(messages: Sequence[Message], topics: Mapping[str, str]) -> list[Message]:
    """The messages, of which those of these topics come three in one: as an array, or as an object that has it.

    Some have no rows, and others an element that breaks the contract.
    """
    found = [each for each in messages if each.topic not in topics or each.payload is None]
    for topic, name in topics.items():
        of_topic = [each for each in messages if each.topic == topic and each.payload is not None]
        for place, three in enumerate(in_threes(of_topic)):
            elements = [json.loads(each.payload or b"") for each in three]
            given = [elements, elements, elements, [], [*elements, {"price": "cheap"}], [*elements, None]][place % 6]
            payload = {name: given or None} if place % 2 else given
            found.append(three[0]._replace(payload=json.dumps(payload).encode()))
    return found


def in_one_topic(messages: Iterable[Message]) -> list[Message]:
    """The messages, of which items and orders are in one topic, where some are of no kind, and some can't be read."""
    found = []
    for place, each in enumerate(messages):
        payload, properties = each.payload, (("of", "item"),)
        if each.topic == "orders":
            value = json.loads(payload or b"")
            order = {"kind": "order", "lines": value if isinstance(value, list) else value["lines"]}
            payload, properties = json.dumps(order).encode(), (("of", "other"),)
        if each.topic != "users":
            payload = payload and [b"5", b"{", b'{"kind": "news"}', *9 * [payload]][place % 12]
            each = each._replace(topic="shop", payload=payload, properties=properties if place % 5 else ())
        found.append(each)
    return found


def in_threes(messages: Sequence[Message]) -> list[Sequence[Message]]:
    return [messages[at : at + 3] for at in range(0, len(messages), 3)]


@examples(deadline=None)
@given(
    messages=st.lists(MESSAGES, min_size=20, max_size=60),
    cuts=st.lists(st.integers(0, 60), max_size=3),
    as_of=st.frozensets(st.sampled_from(["users", "items"])),
    optional=st.frozensets(st.sampled_from(["users", "items"])),
    max_merges=st.integers(1, 5),
    matched=st.frozensets(st.sampled_from([each.name for each in MATCHED.matches])),
)
def test_which_orders_are_in_gold_does_not_depend_on_what_came_in_which_round(
    messages: list[Message],
    cuts: list[int],
    as_of: frozenset[str],
    optional: frozenset[str],
    max_merges: int,
    matched: frozenset[str],
) -> None:
    """The oracle, with which the tables are compared, has this property. No order comes twice, and time passes.

    Each order is joined with the same survivor and the same partners in the end, and with the same state if all joins
    are as of a time.
    """
    once = {each.key if each.topic == "orders" else index: each for index, each in enumerate(messages)}
    placed = numbered(once.values())
    joins = [
        replace(each, is_as_of=each.entity in as_of, required=each.entity not in optional, max_merges=max_merges)
        for each in JOINS
    ]
    if "users" in as_of:  # a latest row has the keys of the time when it was looked up
        joins[0] = replace(joins[0], follows_merges=False)
        joins.append(replace(joins[0], name="parent", on=("user.parent_user_id",)))
    matches = [each for each in matches_of(MATCHED) if each.name in matched]
    whole, parts = (Oracle(joins=joins, matches=matches) for _ in range(2))
    whole.run(placed)
    for number, (start, end) in enumerate(pairwise(sorted({0, *cuts, len(placed)}))):
        parts.run(placed[start:end], now=at(10 * number))
    parts.run([])
    for match in matches:
        assert partners(parts.gold, match) == partners(whole.gold, match)
    if as_of == {"users", "items"}:
        assert by_position(parts.gold) == by_position(whole.gold)
    assert ways(parts.gold, joins) == ways(whole.gold, joins)
    assert positions(parts.waiting) == positions(whole.waiting)


def ways(orders: Iterable[Row], joins: Sequence[Join]) -> list[tuple[object, ...]]:
    """The keys that each order is joined with, and the merged users on the way there."""
    return [
        (order["position"], order.get("user_merged"), *(join.key_in(order[join.name]) for join in joins))
        for order in by_position(orders)
    ]


def partners(orders: Iterable[Row], match: OraclesMatch) -> list[object]:
    return [order[match.name] for order in by_position(orders)]


def positions(orders: Iterable[Row]) -> set[Position]:
    return {Position(**order["position"]) for order in orders}


def merge_all_and_enrich(lake: Lake, entities: Sequence[Entity], orders: Enrichment, succession: Succession) -> None:
    catch_up(lake.settings, merging(lake, entities))
    stream = partial(enrich, lake, as_written(lake, orders), succession)
    prepare = partial(expire, lake.settings, orders)
    catch_up(lake.settings, [Stream("enrich orders", stream, caught_up=succession.caught_up, prepare=prepare)])
