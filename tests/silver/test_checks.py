"""Checks of an entity: what goes to quarantine and comes back, and what ends the step."""

import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

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
def project(settings: Settings, tmp_path: Path) -> Settings:
    return own_home(settings, tmp_path)


def merge(lake: Lake, entity: Entity) -> None:
    catch_up(lake.settings, merging(lake, [entity]))


def held(project: Settings) -> tuple[list[Row], list[Row]]:
    return by_id(read(project, "silver.items")), by_version(read(project, "silver.items_history"))


def wanted(oracle: Oracle) -> tuple[list[Row], list[Row]]:
    return oracle.latest("items"), by_version(oracle.history("items"))


def test_a_message_in_quarantine_leaves_its_key_as_it_was_until_it_is_retried(
    spark: SparkSession, project: Settings
) -> None:
    land_literally(Lake(spark, project), MESSAGES)
    merge(Lake(spark, project), ITEMS)
    assert held(project) == wanted(Oracle().run(MESSAGES))
    assert [(row["id"], row["price"]) for row in held(project)[0]] == [(1, 2.0), (3, None)]
    reasons = {row["position"]["entry_id"]: row["reason"] for row in read(project, "quarantine.malformed")}
    assert reasons == {1: "fails price_is_not_negative", 2: "fails price_is_not_negative"}
    assert reconcile_entity(Lake(spark, project), ITEMS).holds
    assert retry_changes(Lake(spark, project), UNCHECKED, dry_run=False).sound == 2
    assert [(row["id"], row["price"]) for row in held(project)[0]] == [(1, -1.0), (2, -1.0), (3, None)]
    assert reconcile_entity(Lake(spark, project), UNCHECKED).holds


def test_what_is_merged_stays_when_a_check_is_new_and_all_is_read_again(spark: SparkSession, project: Settings) -> None:
    land_literally(Lake(spark, project), MESSAGES)
    merge(Lake(spark, project), UNCHECKED)
    before = held(project)
    shutil.rmtree(project.checkpoint_path(ITEMS.table.name))
    merge(Lake(spark, project), ITEMS)
    assert held(project) == before
    assert reconcile_entity(Lake(spark, project), ITEMS).holds


def test_a_check_that_fails_ends_the_step_before_anything_is_merged(spark: SparkSession, project: Settings) -> None:
    first = [item(4), item(4, 3.0, when=1, place=4)]
    for message in first:
        land_literally(Lake(spark, project), [message])
        merge(Lake(spark, project), STOPPING)
    before = held(project)
    land_literally(Lake(spark, project), MESSAGES)
    line = r'^merge items: silver.items: .*: 2 with price_is_not_negative, such as {"id":1,"sequence":{.*}}: nothing is'
    for _ in range(2):
        with pytest.raises(PermanentError, match=line):
            merge(Lake(spark, project), STOPPING)
        assert held(project) == before
    merge(Lake(spark, project), ITEMS)
    assert held(project) == wanted(Oracle().run([*first, *MESSAGES]))
    assert reconcile_entity(Lake(spark, project), ITEMS).holds
