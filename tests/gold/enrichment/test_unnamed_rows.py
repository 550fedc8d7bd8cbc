"""Sales of which some name no store: they go to gold without one, as from a left join, and nothing waits for ever."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from pulsar_lakehouse import Enrichment, Entity, Lookup, Topic
from pulsar_lakehouse.expectations.gold import enriched
from pulsar_lakehouse.expectations.quarantine import waiting
from pulsar_lakehouse.expectations.validation import validate
from pulsar_lakehouse.gold.enrichment.backfill import Difference, Scope, backfill
from pulsar_lakehouse.gold.enrichment.reconciliation import reconcile_facts
from pulsar_lakehouse.jobs.steps import enriching, merging
from pulsar_lakehouse.jobs.streams import catch_up
from pulsar_lakehouse.jobs.trace import trace_facts
from pulsar_lakehouse.settings import Settings
from pulsar_lakehouse.tables.direct import append_values
from pulsar_lakehouse.tables.lake import Lake
from tests.lake import land_literally, own_home, read
from tests.messages import at, message, millis
from tests.oracle import Message

STORES = Entity(
    topic=Topic("stores", "id BIGINT NOT NULL, ownerId BIGINT", changelog=True),
    key="id",
    columns="id, ownerId AS owner_id",
)
OWNERS = Entity(topic=Topic("owners", "id BIGINT NOT NULL, name STRING", changelog=True), key="id", columns="id, name")
CURRENCIES = Entity(
    topic=Topic("currencies", "bank INT NOT NULL, code STRING NOT NULL", changelog=True),
    key=("bank", "code"),
    columns="bank, code",
)
SALES = Enrichment(
    topic=Topic(
        "sales", "id BIGINT NOT NULL, storeId BIGINT, bank BIGINT, code STRING, soldAt TIMESTAMP_MILLIS NOT NULL"
    ),
    columns="id, storeId AS store_id, bank, code, soldAt AS sold_at",
    keys=("id",),
    event_time="sold_at",
    day="sale_date",
    lookups=(
        Lookup(entity=STORES, on="store_id", name="store"),
        Lookup(entity=OWNERS, on="store.owner_id", name="owner"),
        Lookup(entity=CURRENCIES, on=("bank", "code"), name="currency"),
    ),
)
ENTITIES = STORES, OWNERS, CURRENCIES


def sale(id: int, **fields: object) -> Message:
    return message("sales", {"id": id, "soldAt": millis(at(10)), **fields}, key=None, place=id)


def run(lake: Lake, *messages: Message, sales: Enrichment = SALES, entities: Sequence[Entity] = ENTITIES) -> None:
    land_literally(lake, messages, [sales.topic, *(each.topic for each in entities)])
    catch_up(lake.settings, merging(lake, entities))
    catch_up(lake.settings, enriching(lake, [sales]))


def failing(lake: Lake) -> list[str]:
    results = validate(lake, [waiting(SALES, at_most=1), enriched(SALES)], only_new=False)
    return [each.rule for each in results if each.outcome != "passed" and each.severity == "critical"]


def in_gold(project: Settings) -> dict[int, tuple[object, ...]]:
    """By sale, the keys of what it was joined with."""
    return {
        row["id"]: (
            row["store"] and row["store"]["id"],
            row["owner"] and row["owner"]["name"],
            row["currency"] and row["currency"]["code"],
        )
        for row in read(project, SALES.gold_table)
    }


def awaited(project: Settings) -> dict[int, list[tuple[object, ...]]]:
    rows = read(project, SALES.waiting.name)
    return {row["id"]: [(each["entity"], each["key"], each["via"]) for each in row["missing"]] for row in rows}


@pytest.fixture
def project(lake: Lake, tmp_path: Path) -> Settings:
    return own_home(lake.settings, tmp_path)


def test_a_sale_that_names_no_store_goes_to_gold_without_one(lake: Lake, project: Settings) -> None:
    """And so without an owner. Half a key names no currency either.

    Sale 4 waits for the owner of its store, who may still be named. Sale 5 waits for a bank with a number that is too
    large for the banks' keys.
    """
    own = Lake(lake.spark, project)
    run(
        own,
        message("stores", {"id": 1, "ownerId": 7}, key="1", place=10),
        message("stores", {"id": 2}, key="2", place=11),
        message("owners", {"id": 7, "name": "Ada"}, key="7", place=12),
        message("currencies", {"bank": 1, "code": "EUR"}, key='[1,"EUR"]', place=13),
        sale(1, storeId=1, bank=1, code="EUR"),
        sale(2, bank=1, code="EUR"),
        sale(3, storeId=1, bank=1),
        sale(4, storeId=2),
        sale(5, bank=3_000_000_000, code="EUR"),
        sale(6),
    )
    assert in_gold(project) == {
        1: (1, "Ada", "EUR"),
        2: (None, None, "EUR"),
        3: (1, "Ada", None),
        6: (None, None, None),
    }
    assert awaited(project) == {
        4: [("owners", None, [{"entity": "stores", "key": "2"}])],
        5: [("currencies", '[3000000000,"EUR"]', None)],
    }
    assert [event.what for event in trace_facts(project, SALES, ["4"]) if event.table == SALES.waiting.name] == [
        "waits for owners, of whom stores 2 names none: owner missing"
    ]
    assert failing(own) == []
    assert reconcile_facts(own, SALES).holds
    everything = Difference(unchanged=4, changed=0, added=0, removed=0, waiting=2)
    assert backfill(own, SALES, Scope(), dry_run=True) == everything


def test_a_sale_that_an_older_release_left_waiting_for_no_store_goes_to_gold(lake: Lake, project: Settings) -> None:
    """With the next change of any state."""
    own, in_stores = Lake(lake.spark, project), replace(SALES, lookups=SALES.lookups[:1])
    run(own, sale(1, storeId=9), sales=in_stores, entities=[STORES])
    [row] = read(project, SALES.waiting.name)
    for_none = [{"entity": "stores", "key": None, "reason": "missing", "merged": None, "via": None}]
    position = row["position"] | {"entry_id": 2}
    append_values(
        project, SALES.waiting.name, [row | {"id": 2, "store_id": None, "position": position, "missing": for_none}]
    )
    run(own, message("stores", {"id": 8}, key="8", place=3), sales=in_stores, entities=[STORES])
    gold = [(row["id"], row["store"]) for row in read(project, SALES.gold_table)]
    assert (gold, list(awaited(project))) == ([(2, None)], [1])
