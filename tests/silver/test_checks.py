"""Checks of an entity: what goes to quarantine and comes back, and what ends the step."""

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from pulsar_lakehouse.contracts.checks import fail
from pulsar_lakehouse.domains.shop.declarations.items import ITEMS
from pulsar_lakehouse.errors import PermanentError
from pulsar_lakehouse.jobs.retry_malformed import retry_changes
from pulsar_lakehouse.jobs.steps import merging
from pulsar_lakehouse.jobs.streams import catch_up
from pulsar_lakehouse.settings import Settings
from pulsar_lakehouse.silver.entity import Entity
from pulsar_lakehouse.silver.reconciliation import reconcile_entity
from pulsar_lakehouse.tables.lake import Lake
from tests.lake import land_literally, own_home, read
from tests.messages import item, tombstone
from tests.oracle import Oracle, by_id, by_version
from tests.oracle_lookups import Row

MESSAGES = [
    item(1, 2.0),
    item(1, -1.0, when=1, place=1),
    item(2, -1.0, place=2),
    tombstone("items", "3", place=3),
]
UNCHECKED = replace(ITEMS, checks={})
STOPPING = replace(ITEMS, checks={"price_is_not_negative": fail("price >= 0")})


@pytest.fixture
def lake(settings: Settings, tmp_path: Path) -> Settings:
    return own_home(settings, tmp_path)


def merge(lake: Lake, entity: Entity) -> None:
    catch_up(lake.settings, merging(lake, [entity]))


def held(lake: Lake) -> tuple[list[Row], list[Row]]:
    return by_id(read(lake.settings, "silver.items")), by_version(read(lake.settings, "silver.items_history"))


def wanted(oracle: Oracle) -> tuple[list[Row], list[Row]]:
    return oracle.latest("items"), by_version(oracle.history("items"))


def test_a_message_in_quarantine_leaves_its_key_as_it_was_until_it_is_retried(lake: Lake) -> None:
    land_literally(lake, MESSAGES)
    merge(lake, ITEMS)
    assert held(lake.settings) == wanted(Oracle().run(MESSAGES))
    assert [(row["id"], row["price"]) for row in held(lake.settings)[0]] == [(1, 2.0), (3, None)]
    reasons = {row["position"]["entry_id"]: row["reason"] for row in read(lake.settings, "quarantine.malformed")}
    assert reasons == {1: "fails price_is_not_negative", 2: "fails price_is_not_negative"}
    assert reconcile_entity(lake, ITEMS).holds
    assert retry_changes(lake, UNCHECKED, dry_run=False).sound == 2
    assert [(row["id"], row["price"]) for row in held(lake.settings)[0]] == [(1, -1.0), (2, -1.0), (3, None)]
    assert reconcile_entity(lake, UNCHECKED).holds


def test_what_is_merged_stays_when_a_check_is_new_and_all_is_read_again(lake: Lake) -> None:
    land_literally(lake, MESSAGES)
    merge(lake, UNCHECKED)
    before = held(lake.settings)
    shutil.rmtree(lake.settings.checkpoint_path(ITEMS.table.name))
    merge(lake, ITEMS)
    assert held(lake.settings) == before
    assert reconcile_entity(lake, ITEMS).holds


def test_a_check_that_fails_ends_the_step_before_anything_is_merged(lake: Lake) -> None:
    first = [item(4), item(4, 3.0, when=1, place=4)]
    for message in first:
        land_literally(lake, [message])
        merge(lake, STOPPING)
    before = held(lake.settings)
    land_literally(lake, MESSAGES)
    line = r'^merge items: silver.items: .*: 2 with price_is_not_negative, such as {"id":1,"sequence":{.*}}: nothing is'
    for _ in range(2):
        with pytest.raises(PermanentError, match=line):
            merge(lake, STOPPING)
        assert held(lake.settings) == before
    merge(lake, ITEMS)
    assert held(lake.settings) == wanted(Oracle().run([*first, *MESSAGES]))
    assert reconcile_entity(lake, ITEMS).holds
