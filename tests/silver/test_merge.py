import json
from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from itertools import chain, combinations, permutations
from pathlib import Path
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import DataFrame, SparkSession

from pulsar_lakehouse.bronze.landing import bronze_table
from pulsar_lakehouse.contracts.decoding import MALFORMED, explain
from pulsar_lakehouse.contracts.topics import Topic
from pulsar_lakehouse.domains.shop.declarations.users import USERS
from pulsar_lakehouse.errors import ConfigurationError
from pulsar_lakehouse.jobs.streams import Stream, catch_up
from pulsar_lakehouse.settings import Settings
from pulsar_lakehouse.silver.entity import Entity
from pulsar_lakehouse.silver.merge import create_tables, decode_changes, latest_changes, merge, merge_batch
from pulsar_lakehouse.silver.reconciliation import reconcile_entity
from pulsar_lakehouse.tables.lake import Lake
from tests.lake import bronze_row, land_literally, own_home, read
from tests.messages import at, message, millis, tombstone, user
from tests.oracle import Message, Oracle, Position, by_id, by_version
from tests.oracle_lookups import Row, text_of
from tests.searching import few

# What happens to one user; the messages may arrive in any order. One change is older than the delete but is published
# after it, and two changes are of the same moment.
STORY = (
    ("created", 0, 0, 0),
    ("renamed", 1, 1, 0),
    ("renamed at the same moment", 1, 2, 0),
    (None, 3, 3, 0),
    ("renamed before the delete, but late", 2, 4, 5),
)


def story(id: int) -> list[Message]:
    return [
        tombstone("users", str(id), when=when, place=1_000 * id + place, late=late)
        if name is None
        else user(id, name, when=when, place=1_000 * id + place, late=late)
        for name, when, place, late in STORY
    ]


def bronze(spark: SparkSession, messages: list[Message]) -> DataFrame:
    return spark.createDataFrame([bronze_row(each) for each in messages], bronze_table(USERS.topic).ddl)


def merge_all(lake: Lake, batches: list[list[Message]], entity: Entity = USERS) -> list[Row]:
    for batch in filter(None, batches):
        merge_batch(lake, entity, bronze(lake.spark, batch))
    return by_id(read(lake.settings, USERS.table.name))


def test_every_order_in_every_three_batches_gives_the_same(spark: SparkSession, silver: Settings) -> None:
    """Each user is a separate trial: all permutations of the story, cut into three batches in all ways."""
    batches: list[list[Message]] = [[], [], []]
    trials = [(order, cuts) for order in permutations(range(5)) for cuts in combinations(range(7), 2)]
    for id, (order, (first, second)) in enumerate(trials):
        arrival = [story(id)[index] for index in order]
        for batch, part in zip(batches, (arrival[:first], arrival[first:second], arrival[second:]), strict=True):
            batch.extend(part)
    held = merge_all(Lake(spark, silver), batches)
    oracle = Oracle().run(chain(*batches))
    assert held == oracle.latest("users")
    assert by_version(read(silver, USERS.history.name)) == by_version(oracle.history("users"))
    assert {row["deleted_at"] for row in held} == {at(3)}


CHANGES = st.builds(
    lambda id, name, when, late, place, kind, version, moved: {
        "update": user(id, name, when=when, late=late, place=place, parentUserId=version, mergedAt=moved),
        "delete": user(id, name, when=when, late=late, place=place, parentUserId=version, deletedAt=1_767_225_600_000),
        "tombstone": tombstone("users", str(id), when=when, late=late, place=place),
        "timeless": message("users", {"id": id, "createdAt": 0}, key=None, when=None, late=late, place=place),
        "broken": message("users", {"id": str(id), "createdAt": 0}, key=str(id), when=when, late=late, place=place),
        "misplaced": message("users", {"id": id, "createdAt": 0}, key=str(id + 1), when=when, place=place),
    }[kind],
    id=st.integers(1, 12),
    name=st.sampled_from(["Ada", "Zoë", "", None]),
    when=st.integers(0, 2),
    late=st.integers(0, 2),
    place=st.integers(0, 1_000_000),
    kind=st.sampled_from(["update", "delete", "tombstone", "timeless", "broken", "misplaced"]),
    version=st.sampled_from([None, 1, 2, 3]),
    moved=st.sampled_from([None, -1, millis(at(1)), millis(at(3)), millis(datetime(9999, 12, 31, tzinfo=UTC))]),
)


@pytest.mark.parametrize(
    ("by", "occurred_at", "ignoring"),
    [
        ((), None, ()),
        (("parent_user_id", "first_name"), None, ("first_name", "parent_user_id")),
        (("parent_user_id",), "mergedAt", ()),
    ],
)
@few(1)
@given(
    changes=st.lists(CHANGES, min_size=40, max_size=80, unique_by=lambda change: change.position),
    random=st.randoms(use_true_random=True),
)
def test_any_order_any_batches_and_any_repeats_give_the_same(
    lake: Lake,
    tmp_path_factory: pytest.TempPathFactory,
    by: tuple[str, ...],
    occurred_at: str | None,
    ignoring: tuple[str, ...],
    changes: list[Message],
    random: Random,
) -> None:
    users = replace(USERS, sequence_by=by, occurred_at=occurred_at or "NULL", ignore_null_updates=ignoring)
    own = own_home(lake.settings, tmp_path_factory.mktemp("silver"))
    create_tables(Lake(lake.spark, own), users)
    arrival = random.sample(changes, len(changes))
    cut = random.randint(0, len(arrival))
    again = random.sample(changes[:cut], cut // 2)
    land_literally(Lake(lake.spark, own), changes)
    own_time = {"users": occurred_at} if occurred_at else {}
    oracle = Oracle(sequence_by={"users": by}, occurred_at=own_time, ignoring={"users": ignoring}).run(changes)
    assert merge_all(Lake(lake.spark, own), [arrival[:cut], arrival[cut:], again], users) == oracle.latest("users")
    versions = [{name: row[name] for name in row if name != "given"} for row in read(own, USERS.history.name)]
    assert by_version(versions) == by_version(oracle.history("users"))
    assert len(read(own, MALFORMED.name)) == len(oracle.malformed)
    assert reconcile_entity(Lake(lake.spark, own), users).holds


ACCOUNTS = replace(USERS, key=("id", "last_name"))
NAMES = st.sampled_from(["EUR", 'a "b"', "x,\\]", "Zoë\n", ""])
KEYED = st.builds(
    lambda id, name, text, when, is_gone: message(
        "users", None if is_gone else {"id": id, "lastName": name, "createdAt": 0}, key=text(id, name), when=when
    ),
    id=st.integers(1, 4),
    name=st.one_of(NAMES, NAMES, st.none()),
    text=st.sampled_from(
        [
            lambda id, name: text_of([id, name]),
            lambda id, name: text_of([id, name]),
            lambda id, name: text_of([id, "EUR"]),
            lambda id, name: None,
            lambda id, name: json.dumps([id, name], separators=(", ", ":")),
            lambda id, name: text_of([str(id), name]),
            lambda id, name: text_of([id]),
        ]
    ),
    when=st.integers(0, 9),
    is_gone=st.booleans(),
)


@few(1)
@given(changes=st.lists(KEYED, min_size=60, max_size=90, unique=True), cut=st.integers(20, 40))
def test_a_key_of_two_columns(
    lake: Lake,
    tmp_path_factory: pytest.TempPathFactory,
    changes: list[Message],
    cut: int,
) -> None:
    own = own_home(lake.settings, tmp_path_factory.mktemp("silver"))
    create_tables(Lake(lake.spark, own), ACCOUNTS)
    placed = [each._replace(position=Position(0, 7, place, 0)) for place, each in enumerate(changes)]
    land_literally(Lake(lake.spark, own), placed)
    oracle = Oracle(keys={"users": ACCOUNTS.keys}).run(placed)
    merge_all(Lake(lake.spark, own), [placed[cut:], placed[:cut], placed[::2]], ACCOUNTS)
    assert by_account(read(own, ACCOUNTS.table.name)) == by_account(oracle.latest("users"))
    assert by_account(read(own, ACCOUNTS.history.name)) == by_account(oracle.history("users"))
    assert {Position(**row["position"]) for row in read(own, MALFORMED.name)} == {at for _, at in oracle.malformed}
    assert reconcile_entity(Lake(lake.spark, own), ACCOUNTS).holds


def by_account(rows: Iterable[Row]) -> list[Row]:
    return sorted(rows, key=lambda row: (row["id"], row["last_name"], row["sequence"]["entry_id"]))


def test_why_a_key_of_two_columns_is_malformed(spark: SparkSession) -> None:
    def keyed(name: str | None, key: str | None, place: int) -> Message:
        return message("users", {"id": 5, "lastName": name, "createdAt": 0}, key=key, place=place)

    changes = [
        keyed("EUR", '[5,"EUR"]', 0),
        keyed(None, '[5,"EUR"]', 1),
        keyed("EUR", '[5, "EUR"]', 2),
        keyed("EUR", "5", 3),
        keyed(None, None, 4),
        tombstone("users", '[5,"EUR"]', place=5),
        tombstone("users", '["5","EUR"]', place=6),
    ]
    rows = bronze(spark, changes).transform(decode_changes, entity=ACCOUNTS).orderBy("message.position").collect()
    assert [row.reason or (row.id, row.last_name) for row in rows] == [
        (5, "EUR"),
        (5, "EUR"),
        'message key [5, "EUR"] is not the [id, last_name]: [5,"EUR"]',
        'message key 5 is not the [id, last_name]: [5,"EUR"]',
        "last_name is NULL",
        (5, "EUR"),
        'tombstone whose message key is not of type [BIGINT, STRING]: ["5","EUR"]',
    ]


def test_what_has_no_key_goes_to_quarantine(spark: SparkSession, silver: Settings) -> None:
    coded = replace(USERS, columns={**USERS.columns, "id": "nullif(id, 0)"})
    payload = {"id": 0, "createdAt": 0}
    batch = [message("users", payload, key=None), message("users", payload, key="7", place=1)]
    merge_batch(Lake(spark, silver), coded, bronze(spark, batch))
    assert [row["id"] for row in read(silver, USERS.table.name)] == [7]
    assert [row["reason"] for row in read(silver, MALFORMED.name)] == ["id is NULL"]


def test_a_batch_again_adds_no_file(spark: SparkSession, silver: Settings) -> None:
    batch = [
        user(1),
        user(2, when=1, place=1),
        tombstone("users", "2", when=2, place=2),
        message("users", b"", key="3", place=3),
    ]
    merge_all(Lake(spark, silver), [batch])
    files = set((Path(silver.warehouse_root) / "silver").rglob("*.parquet"))
    merge_all(Lake(spark, silver), [batch])
    assert set((Path(silver.warehouse_root) / "silver").rglob("*.parquet")) == files


def test_a_history_that_is_kept_from_now_on_has_all_that_landed_before(lake: Lake, tmp_path: Path) -> None:
    project = own_home(lake.settings, tmp_path)
    land_literally(Lake(lake.spark, project), [user(1), user(1, when=5, place=1)])
    for entity in (replace(USERS, keeps_history=False), USERS):
        catch_up(project, [Stream("merge", partial(merge, Lake(lake.spark, project), entity))])
    assert [row["valid_until"] for row in by_version(read(project, USERS.history.name))] == [at(5), None]


def test_a_late_message_splits_the_interval_that_it_falls_in(spark: SparkSession, silver: Settings) -> None:
    batches = [
        [user(1, "born", when=0), user(1, "renamed", when=20, place=1)],
        [user(1, "late", when=10, place=2)],
        [user(1, "at once replaced", when=20, place=0)],
    ]
    merge_all(Lake(spark, silver), batches)
    rows = by_version(read(silver, USERS.history.name))
    assert [(row["first_name"], row["valid_from"], row["valid_until"]) for row in rows] == [
        ("born", at(0), at(10)),
        ("late", at(10), at(20)),
        ("at once replaced", at(20), at(20)),
        ("renamed", at(20), None),
    ]


def test_a_version_of_an_earlier_time_takes_the_time_of_those_before_it(lake: Lake, tmp_path: Path) -> None:
    users, project = replace(USERS, sequence_by="parent_user_id"), own_home(lake.settings, tmp_path)
    create_tables(Lake(lake.spark, project), users)
    batches = [
        [user(1, "third", when=20, parentUserId=3), user(1, "first", when=10, parentUserId=1, place=1)],
        [user(1, "second", when=5, parentUserId=2, place=2), user(1, "of no version", when=30, place=3)],
    ]
    assert [row["first_name"] for row in merge_all(Lake(lake.spark, project), batches, users)] == ["third"]
    rows = by_version(read(project, users.history.name))
    assert [(row["first_name"], row["valid_from"], row["valid_until"]) for row in rows] == [
        ("of no version", at(30), at(30)),
        ("first", at(10), at(10)),
        ("second", at(5), at(20)),
        ("third", at(20), None),
    ]


VERSIONED = Entity(
    topic=Topic("users", "id BIGINT NOT NULL, seq BIGINT"),
    key="id",
    columns="id, coalesce(seq, CAST(message.properties['seq'] AS BIGINT)) AS seq",
    sequence_by="seq",
    occurred_at="timestamp_seconds(coalesce(seq, CAST(message.properties['seq'] AS BIGINT)))",
)


def test_versions_begin_at_the_time_that_their_payloads_have(lake: Lake, tmp_path: Path) -> None:
    """The messages have no event time, and are published at once. The greatest time is after the year 9999."""
    own = Lake(lake.spark, own_home(lake.settings, tmp_path))
    create_tables(own, VERSIONED)
    last, delete = 10**12, 40
    for place, seq in enumerate([20, 10, None, last, delete]):
        sent = message("users", None if seq == delete else {"id": 1, "seq": seq}, key="1", when=None, place=place)
        row = list(bronze_row(sent))
        row[7] = {"seq": "40"} if seq == delete else {}
        merge_batch(own, VERSIONED, own.spark.createDataFrame([tuple(row)], bronze_table(USERS.topic).ddl))
    rows = by_version(read(own.settings, VERSIONED.history.name))
    published = at(0)
    assert [(row["seq"], row["deleted_at"], row["valid_from"], row["valid_until"]) for row in rows] == [
        (None, None, published, published),
        (10, None, second(10), second(20)),
        (20, None, second(20), second(40)),
        (40, second(40), second(40), published),
        (last, None, published, None),
    ]


def second(number: int) -> datetime:
    return datetime.fromtimestamp(number, UTC)


def test_an_occurred_at_that_fails_rejects_its_message(spark: SparkSession) -> None:
    users = replace(USERS, occurred_at="to_timestamp(firstName)")
    rows = bronze(spark, [user(1, "2026-01-01"), user(2, "Ada")]).transform(decode_changes, entity=users)
    rejected = rows.where("reason IS NOT NULL").transform(explain, decoding=users.decoding)
    assert [row.reason for row in rejected.collect()] == [
        "occurred_at: to_timestamp(firstName) gives no timestamp with firstName = Ada"
    ]


def test_an_occurred_at_is_a_time(spark: SparkSession) -> None:
    line = (
        r"^users: occurred_at: parentUserId is bigint: must be a TIMESTAMP, such as a field of type TIMESTAMP_MILLIS$"
    )
    with pytest.raises(ConfigurationError, match=line):
        replace(USERS, occurred_at="parentUserId").table.ddl  # noqa: B018


def test_a_table_keeps_its_order(spark: SparkSession, silver: Settings) -> None:
    with pytest.raises(ConfigurationError, match=r"^users: sequence_by parent_user_id: silver.users has the sequence"):
        create_tables(Lake(spark, silver), replace(USERS, sequence_by="parent_user_id"))


def test_a_deleted_user_comes_back_with_a_newer_message(spark: SparkSession, silver: Settings) -> None:
    deleted = tombstone("users", "1", when=2, place=1)
    [row] = merge_all(Lake(spark, silver), [[user(1), deleted], [user(1, "late", when=1, place=2)]])
    assert (row["first_name"], row["deleted_at"]) == (None, at(2))
    [row] = merge_all(Lake(spark, silver), [[user(1, "back", when=3, place=3)]])
    assert (row["first_name"], row["deleted_at"]) == ("back", None)


def decoded(spark: SparkSession, messages: list[Message]) -> list[Row]:
    rows = bronze(spark, messages).transform(decode_changes, entity=USERS).orderBy("message.position")
    return [row.asDict(recursive=True) for row in rows.collect()]


def test_minus_one_is_no_time_and_no_parent(spark: SparkSession) -> None:
    unset, old = user(1, parentUserId=-1), user(2, deletedAt=0, mergedAt=0, parentUserId=9, place=1)
    rows = decoded(spark, [unset, old])
    columns = ("deleted_at", "merged_at", "parent_user_id")
    assert [[row[name] is None for name in columns] for row in rows] == [[True] * 3, [False] * 3]
    assert rows[1]["parent_user_id"] == 9


def test_a_tombstone_is_known_by_its_key_alone(spark: SparkSession) -> None:
    messages = [
        tombstone("users", "5", when=1),
        tombstone("users", "five", place=1),
        tombstone("users", None, place=2),
    ]
    assert [(row["id"], row["reason"]) for row in decoded(spark, messages)] == [
        (5, None),
        (None, "tombstone whose message key is not of type BIGINT: five"),
        (None, "tombstone whose message key is not of type BIGINT: none"),
    ]


def test_the_sql_of_columns_sees_the_null_fields_of_a_tombstone(spark: SparkSession) -> None:
    named = replace(USERS, columns={"id": "id", "name": "coalesce(firstName, 'nobody')"})
    rows = bronze(spark, [tombstone("users", "5", when=1)]).transform(decode_changes, entity=named).collect()
    assert [(row.id, row.name, row.deleted_at is None) for row in rows] == [(5, "nobody", False)]


def test_a_message_key_must_be_the_id(spark: SparkSession) -> None:
    def keyed(key: str | None, place: int) -> Message:
        return message("users", {"id": 5, "createdAt": 0}, key=key, place=place)

    assert [row["reason"] for row in decoded(spark, [keyed("5", 0), keyed(None, 1), keyed("6", 2), keyed("x", 3)])] == [
        None,
        None,
        "message key 6 is not the id: 5",
        "message key x is not the id: 5",
    ]


def test_without_event_time_a_message_counts_at_its_publish_time(spark: SparkSession) -> None:
    [row] = decoded(spark, [message("users", {"id": 5, "createdAt": 0}, key="5", when=None, late=7)])
    assert row["sequence"]["event_time"] == row["sequence"]["publish_time"]


def test_the_last_change_of_each_key_wins_by_event_time_then_publish_time_then_place(spark: SparkSession) -> None:
    changes = [
        user(1, "by event time", when=2, place=1),
        user(1, "older, though published last", when=1, place=9, late=5),
        user(2, "by publish time", when=1, late=2, place=2),
        user(2, "published before", when=1, late=1, place=3),
        user(3, "by place", when=1, place=5),
        user(3, "before it", when=1, place=4),
    ]
    rows = bronze(spark, changes).transform(decode_changes, entity=USERS).transform(latest_changes, keys=["id"])
    assert sorted((row.id, row.first_name) for row in rows.collect()) == [
        (1, "by event time"),
        (2, "by publish time"),
        (3, "by place"),
    ]
