"""Orders with a lookup through the row of another one: the user who ordered, and the user's parent."""

from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from pulsar_lakehouse.domains.shop.declarations.orders import ORDERS
from pulsar_lakehouse.gold.enrichment.backfill import Difference, Scope, backfill
from pulsar_lakehouse.gold.enrichment.declaration import Enrichment, Lookup
from pulsar_lakehouse.gold.enrichment.reconciliation import reconcile_facts
from pulsar_lakehouse.jobs.steps import enriching
from pulsar_lakehouse.jobs.streams import catch_up
from pulsar_lakehouse.settings import Settings
from pulsar_lakehouse.tables.lake import Lake
from tests.gold.enrichment.test_enrich import merge_changes
from tests.lake import land_literally, own_home, read
from tests.messages import at, item, millis, order, tombstone, user
from tests.oracle import Message

USER, ITEM = ORDERS.lookups
CHILD = replace(USER, merged_into=None)
PARENT = Lookup(entity=USER.entity, on="user.parent_user_id", name="parent")
FAMILIES = replace(ORDERS, lookups=(CHILD, PARENT, ITEM), publish_to=None)


def run(lake: Lake, orders: Enrichment, *messages: Message) -> None:
    land_literally(lake, messages)
    merge_changes(lake)
    catch_up(lake.settings, enriching(lake, [orders]))


def parents(project: Settings) -> dict[int, str | None]:
    rows = read(project, ORDERS.gold_table)
    return {row["line_item_id"]: row["parent"] and row["parent"]["first_name"] for row in rows}


def awaited(project: Settings) -> list[tuple[str, object, object]]:
    waiting = read(project, ORDERS.waiting.name)
    return [(row["reason"], state["key"], state["via"]) for row in waiting for state in row["missing"]]


@pytest.fixture
def project(settings: Settings, tmp_path: Path) -> Settings:
    return own_home(settings, tmp_path)


def test_an_order_waits_for_its_user_and_then_for_the_parent(spark: SparkSession, project: Settings) -> None:
    """The user has no parent at first, and then one who is not there. A change of the user retries the order."""
    via = [{"entity": "users", "key": "1"}]
    run_round = partial(run, Lake(spark, project), FAMILIES)
    run_round(item(1), order(1, place=1))
    assert awaited(project) == [("user missing", "1", None)]
    run_round(user(1, place=1))
    assert awaited(project) == [("parent missing", None, via)]
    run_round(user(1, when=1, place=2, parentUserId=2), user(3, "Eve", place=3))
    assert awaited(project) == [("parent missing", "2", via)]
    run_round(user(1, when=2, place=4, parentUserId=3))
    assert (parents(project), awaited(project)) == ({1: "Eve"}, [])


@pytest.mark.long
def test_an_order_in_gold_keeps_the_parent_that_the_user_had(spark: SparkSession, project: Settings) -> None:
    """The user gets Eve as another parent, and is deleted after the order: the user's row has no parent any more.

    A late price and a backfill leave the order with Bob. When Bob turns out to have been deleted before the order, it
    is joined with the parent that the user has by then.
    """
    run_round = partial(run, Lake(spark, project), FAMILIES)
    run_round(
        *(item(1), user(1, place=1, parentUserId=2), user(2, "Bob", place=2), user(3, "Eve", place=3)),
        order(1, place=1),
    )
    run_round(user(1, when=1, place=4, parentUserId=3))
    run_round(tombstone("users", "1", when=11, place=5), item(1, 9.5, when=9, place=6))
    assert [(row["parent"]["first_name"], row["item"]["price"]) for row in read(project, ORDERS.gold_table)] == [
        ("Bob", 9.5)
    ]
    assert backfill(Lake(spark, project), FAMILIES, Scope()) == Difference(
        unchanged=1, changed=0, added=0, removed=0, waiting=0
    )
    run_round(user(1, when=12, place=7, parentUserId=3))
    assert parents(project) == {1: "Bob"}
    run_round(user(2, "Bob", when=13, place=8, deletedAt=millis(at(2))))
    assert parents(project) == {1: "Eve"}
    assert reconcile_facts(Lake(spark, project), FAMILIES).holds


@pytest.mark.long
def test_a_backfill_takes_the_parent_that_the_user_has_now(spark: SparkSession, project: Settings) -> None:
    """It finds orders by the user, by the parent in gold, and by the user into whom a missing parent was merged."""
    lookups = (CHILD, replace(USER, name="parent", on="user.parent_user_id", required=False), ITEM)
    orders = replace(FAMILIES, lookups=lookups)
    merged = user(3, "Eve", place=4, mergedAt=millis(at(0)), parentUserId=4)
    run(
        *(Lake(spark, project), orders),
        *(item(1), user(1, place=1, parentUserId=2), user(2, "Bob", place=2)),
        *(order(1, place=1), order(2, place=2, user=5), user(5, place=3, parentUserId=3), merged),
    )
    assert parents(project) == {1: "Bob", 2: None}
    run(Lake(spark, project), orders, user(1, when=1, place=5, parentUserId=6), user(6, "Zoë", place=6))
    assert parents(project) == {1: "Bob", 2: None}

    def found(key: str) -> tuple[int, int]:
        difference = backfill(Lake(spark, project), orders, Scope(entity="users", key=key), dry_run=True)
        return difference.changed, difference.unchanged

    assert {key: found(key) for key in ("1", "2", "4", "7")} == {"1": (1, 0), "2": (1, 0), "4": (0, 1), "7": (0, 0)}
    backfill(Lake(spark, project), orders, Scope(entity="users", key="2"))
    assert parents(project) == {1: "Zoë", 2: None}
