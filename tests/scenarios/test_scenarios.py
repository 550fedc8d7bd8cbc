"""The stories in the folders beside this file."""

import csv
import json
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from pulsar_lakehouse.jobs.steps import enriching, merging, reconcile_all
from pulsar_lakehouse.jobs.streams import catch_up
from pulsar_lakehouse.settings import Settings
from pulsar_lakehouse.tables.lake import Lake
from tests.lake import land_literally, own_home, read
from tests.messages import at, item, millis, order, tombstone, user
from tests.oracle import Message
from tests.oracle_lookups import Row
from tests.shop import ENRICHMENTS, ENTITIES

STORIES = sorted(path.parent for path in Path(__file__).parent.glob("*/STORY.md"))


def lines(story: Path, name: str) -> list[dict[str, str]]:
    path = story / f"{name}.csv"
    return list(csv.DictReader(path.open())) if path.exists() else []


def number(text: str) -> Any:
    """A text that is no number stays a text, and so breaks the contract. An empty one is NULL."""
    return int(text) if text.isdigit() else text or None


def users(row: dict[str, str]) -> Message:
    if row["deleted"] == "tombstone":
        return tombstone("users", row["id"])
    deleted = {"deletedAt": millis(at(int(row["deleted"])))} if row["deleted"] else {}
    merged = {"mergedAt": millis(at(0)), "parentUserId": int(row["merged_into"])} if row["merged_into"] else {}
    return user(number(row["id"]), row["name"], **deleted, **merged)


def items(row: dict[str, str]) -> Message:
    return item(int(row["id"]), float(row["price"])) if row["price"] else tombstone("items", row["id"])


def orders(row: dict[str, str]) -> Message:
    return order(int(row["order"]), place=0, user=number(row["user"]), item=number(row["item"]), when=int(row["event"]))


def told() -> Iterator[tuple[int, Message]]:
    """All messages of all stories, each with its round."""
    places = count()
    for story in STORIES:
        for make in (users, items, orders):
            for row in lines(story, make.__name__):
                made = make(row)
                position = made.position._replace(entry_id=next(places))
                happened, published = at(int(row["event"])), at(int(row["published"]))
                yield (
                    int(row["round"]),
                    made._replace(position=position, event_time=happened, publish_time=published),
                )


@pytest.fixture(scope="module")
def project(lake: Lake, tmp_path_factory: pytest.TempPathFactory, generated_code: None) -> Settings:
    own, arrivals = own_home(lake.settings, tmp_path_factory.mktemp("stories")), list(told())
    for now in sorted({round for round, _ in arrivals}):
        land_literally(Lake(lake.spark, own), [message for round, message in arrivals if round == now])
        catch_up(own, merging(Lake(lake.spark, own), ENTITIES))
        catch_up(own, enriching(Lake(lake.spark, own), ENRICHMENTS))
    return own


def outcomes(settings: Settings) -> list[dict[str, str]]:
    """All orders, in the form of `expected.csv`."""
    tables = {
        "enriched": "gold.enriched_orders",
        "waiting": "quarantine.waiting_orders",
        "duplicate": "quarantine.duplicate_orders",
    }
    found = [outcome(status, row) for status, table in tables.items() for row in read(settings, table)]
    malformed = (row for row in read(settings, "quarantine.malformed") if row["topic"] == "orders")
    return found + [
        outcome("malformed", {"line_item_id": json.loads(row["payload"])["lineItemId"]}) for row in malformed
    ]


def outcome(status: str, row: Row) -> dict[str, str]:
    user, item = row.get("user") or {}, row.get("item") or {}
    waits_for = [f"{state['entity']} {state['key']}" for state in row["missing"]] if status == "waiting" else []
    return {
        "order": str(row["line_item_id"]),
        "status": status,
        "user": str(user.get("id", "")),
        "name": user.get("first_name", ""),
        "merged": " ".join(map(str, row.get("user_merged") or ())),
        "price": f"{item['price']:.2f}" if item else "",
        "waits_for": ", ".join(waits_for),
        "reason": row.get("reason", ""),
    }


def in_order(rows: list[dict[str, str]]) -> list[list[str]]:
    return sorted(list(row.values()) for row in rows)


@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.name)
def test_story(project: Settings, story: Path) -> None:
    expected = lines(story, "expected")
    ids = {row["order"] for row in expected}
    assert in_order([row for row in outcomes(project) if row["order"] in ids]) == in_order(expected)


@pytest.mark.parametrize(
    "story", [story for story in STORIES if lines(story, "users_history")], ids=lambda story: story.name
)
def test_history(project: Settings, story: Path) -> None:
    expected = lines(story, "users_history")
    ids = {row["id"] for row in expected}
    found = [
        {
            "id": str(row["id"]),
            "name": row["first_name"] or "",
            "from": minute(row["valid_from"]),
            "until": minute(row["valid_until"]),
        }
        for row in read(project, "silver.users_history")
        if str(row["id"]) in ids
    ]
    assert in_order(found) == in_order(expected)


def minute(moment: Any) -> str:
    return "" if moment is None else str(int((moment - at(0)).total_seconds() // 60))


def test_nothing_was_lost_in_any_story(spark: SparkSession, project: Settings) -> None:
    assert [reconciliation.problems for reconciliation in reconcile_all(Lake(spark, project))] == [(), (), ()]
