"""Partial updates: a field that a message leaves out keeps its older value."""

from dataclasses import replace
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest

from pulsar_lakehouse.contracts.topics import Topic
from pulsar_lakehouse.domains.shop.declarations.users import USERS
from pulsar_lakehouse.errors import ConfigurationError
from pulsar_lakehouse.silver.entity import Entity
from pulsar_lakehouse.silver.merge import create_tables, merge_batch
from pulsar_lakehouse.tables.lake import Lake
from tests.lake import own_home, read
from tests.messages import at, message, millis, tombstone, user
from tests.oracle import Message, by_id, by_version
from tests.silver.test_merge import bronze

PARTIAL = replace(USERS, ignore_null_updates=True)


def story(id: int) -> list[Message]:
    return [
        user(id, "Ada", when=0, place=10 * id, emailAddress="ada@example.org"),
        tombstone("users", str(id), when=1, place=10 * id + 1),
        user(id, None, when=2, place=10 * id + 2, lastName="Lovelace"),
        user(id, "Augusta", when=3, place=10 * id + 3),
        user(id, None, when=4, place=10 * id + 4, emailAddress="augusta@example.org"),
    ]


def test_every_order_of_partial_updates_gives_the_same(lake: Lake, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Each user is a separate trial. The delete also clears Ada's address."""
    project = own_home(lake.settings, tmp_path_factory.mktemp("partial"))
    create_tables(Lake(lake.spark, project), PARTIAL)
    trials = list(enumerate(permutations(range(5))))
    for part in (slice(0, 2), slice(2, 5), slice(1, 3)):
        batch = [story(id)[index] for id, order in trials for index in order[part]]
        merge_batch(Lake(lake.spark, project), PARTIAL, bronze(lake.spark, batch))
    rows = by_id(read(project, PARTIAL.table.name))
    assert {(row["first_name"], row["last_name"], row["email_address"]) for row in rows} == {
        ("Augusta", "Lovelace", "augusta@example.org")
    }
    versions = by_version(read(project, PARTIAL.history.name))
    assert len(rows) == len(versions) / 5 == 120
    for id, _ in trials:
        assert [
            (row["first_name"], row["last_name"], row["email_address"], row["valid_from"], row["valid_until"])
            for row in versions[5 * id : 5 * id + 5]
        ] == [
            ("Ada", None, "ada@example.org", at(0), at(1)),
            (None, None, None, at(1), at(2)),
            (None, "Lovelace", None, at(2), at(3)),
            ("Augusta", "Lovelace", None, at(3), at(4)),
            ("Augusta", "Lovelace", "augusta@example.org", at(4), None),
        ]


def test_a_message_that_deletes_the_key_drops_the_values_before_it_and_its_own(lake: Lake, tmp_path: Path) -> None:
    """`given` names the columns that have a value in the message itself, except the key and `deleted_at`."""
    own = Lake(lake.spark, own_home(lake.settings, tmp_path))
    create_tables(own, PARTIAL)
    changes = [
        user(1, "Ada", emailAddress="ada@example.org"),
        user(1, "Eve", when=1, place=1, deletedAt=millis(at(1))),
        user(1, None, when=2, place=2, lastName="Lovelace"),
    ]
    merge_batch(own, PARTIAL, bronze(own.spark, changes))
    columns = ("first_name", "last_name", "email_address", "given")
    assert [tuple(row[name] for name in columns) for row in by_version(read(own.settings, PARTIAL.history.name))] == [
        ("Ada", None, "ada@example.org", ["created_at", "email_address", "first_name"]),
        ("Eve", None, None, ["created_at", "first_name"]),
        (None, "Lovelace", None, ["created_at", "last_name"]),
    ]


def test_updates_that_are_partial_from_now_on_keep_what_was_known(
    lake: Lake, tmp_path_factory: pytest.TempPathFactory
) -> None:
    project = own_home(lake.settings, tmp_path_factory.mktemp("partial"))
    for entity, change in ((USERS, user(1, "Ada")), (PARTIAL, user(1, None, when=1, place=1, lastName="Lovelace"))):
        create_tables(Lake(lake.spark, project), entity)
        merge_batch(Lake(lake.spark, project), entity, bronze(lake.spark, [change]))
    versions = by_version(read(project, PARTIAL.history.name))
    assert [(row["first_name"], row["last_name"]) for row in versions] == [("Ada", None), ("Ada", "Lovelace")]


PROFILE = "city: STRING, home: STRUCT<zip: BIGINT>"
PROFILES = Entity(
    topic=Topic("users", f"id BIGINT, name STRING, note STRING, profile STRUCT<{PROFILE}>"),
    key="id",
    columns="id, name, note, profile",
    ignore_null_updates=("name", "profile"),
)
PROFILE_STORY: list[dict[str, Any] | None] = [
    {"name": "Ada", "note": "old", "profile": {"city": "Turin", "home": {"zip": 10121}}},
    {"name": None, "note": None, "profile": {"home": {"zip": 10001}}},
    {"name": "Eve", "note": "new", "profile": {}},
    None,
    {"profile": {"city": None, "home": {}}},
    {"profile": {"city": "Bari"}},
]


def profile(id: int, place: int) -> Message:
    said = PROFILE_STORY[place]
    return message("users", said and {"id": id, **said}, key=str(id), when=place, place=10 * id + place)


def test_some_columns_keep_their_value_and_structs_each_field(lake: Lake, tmp_path: Path) -> None:
    """The messages arrive in two orders. NULL is a value of the note."""
    own = Lake(lake.spark, own_home(lake.settings, tmp_path))
    create_tables(own, PROFILES)
    for arrival in ([1, 4, 2], [5, 0, 3, 1]):
        changes = [*(profile(1, place) for place in arrival), *(profile(2, 5 - place) for place in arrival)]
        merge_batch(own, PROFILES, bronze(own.spark, changes))
    rows = by_version(read(own.settings, PROFILES.history.name))
    turin, bari = {"city": "Turin", "home": {"zip": 10001}}, {"city": "Bari", "home": None}
    first = {"city": "Turin", "home": {"zip": 10121}}
    for id in (1, 2):
        assert [(row["name"], row["note"], row["profile"], row["given"]) for row in rows if row["id"] == id] == [
            ("Ada", "old", first, ["name", "note", "profile.city", "profile.home.zip"]),
            ("Ada", None, turin, ["note", "profile.home.zip"]),
            ("Eve", "new", turin, ["name", "note"]),
            (None, None, None, ["note"]),
            (None, None, None, ["note"]),
            (None, None, bari, ["note", "profile.city"]),
        ]
    assert [row["profile"] for row in read(own.settings, PROFILES.table.name)] == [bari, bari]


def test_a_column_that_ignores_null_is_there() -> None:
    with pytest.raises(ConfigurationError, match=r"^users: ignore_null_updates id: must be one of first_name, last_"):
        replace(USERS, ignore_null_updates=("id",))


def test_partial_updates_need_the_history() -> None:
    with pytest.raises(ConfigurationError, match="users: ignore_null_updates needs keeps_history"):
        replace(PARTIAL, keeps_history=False)
