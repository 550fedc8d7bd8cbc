"""Favorites on a real broker: the tables and topics hold what follows from the messages alone."""

import json
from collections.abc import Iterable
from datetime import timedelta
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from pulsar_lakehouse.domains.favorites.workload import Workload
from pulsar_lakehouse.pulsar.endpoint import Endpoint
from pulsar_lakehouse.pulsar.produce import Message
from pulsar_lakehouse.settings import Settings
from pulsar_lakehouse.tables.lake import Lake
from tests.domains.rounds import as_published, by, in_table, in_topic, lake_of, run, send, unaccounted
from tests.lake import read
from tests.oracle import EPOCH
from tests.oracle_lookups import Row
from tests.published import sent

MESSY = Workload(users=60, accounts=7, delayed=0.1, changed=0.3, deleted=0.2, duplicates=0.1, malformed=0.1)


@pytest.fixture
def project(settings: Settings, endpoint: Endpoint, tmp_path: Path) -> Settings:
    return lake_of("favorites", settings, endpoint, tmp_path)


def latest(messages: Iterable[Message]) -> dict[int, Row]:
    """The last value of each user that is not deleted, with the time since which it holds."""
    in_order = sorted((each for each in messages if not each.broken), key=lambda each: each.event_time)
    last = {int(each.key): each for each in in_order}
    return {
        user: json.loads(each.payload) | {"since": EPOCH + timedelta(milliseconds=each.event_time)}
        for user, each in last.items()
        if each.payload is not None
    }


def counted(users: dict[int, Row]) -> list[Row]:
    members: dict[int, list[Row]] = {}
    for user in users.values():
        members.setdefault(user["accountId"], []).append(user)
    return [
        {"account_id": account, "users": len(found), "last_change": max(each["since"] for each in found)}
        for account, found in members.items()
    ]


def joined(users: dict[int, Row], colors: dict[int, Row], cheeses: dict[int, Row]) -> list[Row]:
    return [
        {
            "user_id": id,
            "name": user["name"],
            "color": colors.get(id, {}).get("color"),
            "color_since": colors.get(id, {}).get("since"),
            "cheese": cheeses.get(id, {}).get("cheese"),
            "cheese_since": cheeses.get(id, {}).get("since"),
        }
        for id, user in users.items()
    ]


@pytest.mark.long
def test_tables_and_topics_follow_from_the_messages(spark: SparkSession, endpoint: Endpoint, project: Settings) -> None:
    first = send(MESSY.first, endpoint, project)
    run(Lake(spark, project))
    late = send(MESSY.late, endpoint, project)
    run(Lake(spark, project))

    users, colors, cheeses = (
        latest([*first[topic], *late[topic]]) for topic in ("account_users", "favorite_colors", "favorite_cheeses")
    )
    for name, key, rows in (
        ("user_count_by_account", "account_id", counted(users)),
        ("user_favorite_color_and_cheese", "user_id", joined(users, colors, cheeses)),
    ):
        assert in_table(project, f"gold.{name}", [key], rows[0]) == by([key], rows)
        assert in_topic(project, endpoint, name, [key], rows[0]) == as_published([key], rows)

    gone = latest(first["account_users"]).keys() - users.keys()
    last = {message.key: message.value for message in sent(project, endpoint, "user_favorite_color_and_cheese")}
    assert {int(key) for key, value in last.items() if value is None} == gone > set()
    broken = [each for messages in (*first.values(), *late.values()) for each in messages if each.broken]
    assert len(read(project, "quarantine.malformed")) == len(broken) > 0
    assert unaccounted(Lake(spark, project)) == {}
