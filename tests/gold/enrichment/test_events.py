"""Enrichments whose facts are joined with nothing, and are told apart by their time."""

from dataclasses import replace
from datetime import date
from pathlib import Path

from pulsar_lakehouse.domains.shop.declarations.orders import ORDERS
from pulsar_lakehouse.expectations.gold import enriched
from pulsar_lakehouse.gold.enrichment.backfill import Difference, Scope, backfill
from pulsar_lakehouse.gold.enrichment.declaration import Enrichment
from pulsar_lakehouse.gold.enrichment.reconciliation import reconcile_facts
from pulsar_lakehouse.jobs.steps import enriching
from pulsar_lakehouse.jobs.streams import catch_up
from pulsar_lakehouse.tables.lake import Lake
from tests.lake import land_literally, own_home, read
from tests.messages import order
from tests.oracle import Message

CLICKS = replace(ORDERS, lookups=(), keys=("line_item_id", "created_at"), publish_to=None)


def run(lake: Lake, clicks: Enrichment, *messages: Message) -> None:
    land_literally(lake, messages)
    catch_up(lake.settings, enriching(lake, [clicks]))


def test_facts_are_appended_without_any_lookup_and_repeat_only_at_the_same_time(lake: Lake, tmp_path: Path) -> None:
    """Click 1 comes at two times, and then again at both of them. A click of the year 1 comes twice, too."""
    project, ancient = own_home(lake.settings, tmp_path), -62_135_596_800_000
    run(Lake(lake.spark, project), CLICKS, order(1, place=1), order(1, place=2, when=11), order(2, place=3, price=-1.0))
    run(Lake(lake.spark, project), CLICKS, order(3, place=4, createdAt=ancient))
    again = order(1, place=5), order(1, place=6, when=11), order(1, place=7, when=12)
    run(Lake(lake.spark, project), CLICKS, *again, order(3, place=8, createdAt=ancient))
    clicks = sorted((row["position"]["entry_id"], row["line_item_id"]) for row in read(project, CLICKS.gold_table))
    assert clicks == [(1, 1), (2, 1), (4, 3), (7, 1)]
    assert sorted(
        (row["position"]["entry_id"], row["duplicate_of"]["entry_id"]) for row in read(project, CLICKS.duplicates.name)
    ) == [(5, 1), (6, 2), (8, 4)]
    assert read(project, CLICKS.waiting.name) == []
    first = Scope(since=date(2026, 1, 1), until=date(2026, 1, 1))
    assert backfill(Lake(lake.spark, project), CLICKS, first) == Difference(
        unchanged=3, changed=0, added=0, removed=0, waiting=0
    )
    assert reconcile_facts(Lake(lake.spark, project), CLICKS).holds


def test_the_rules_of_such_facts_are_named_once() -> None:
    names = [rule.name for rule in enriched(CLICKS).rules]
    assert names.count("created_at_is_there") == 1
    assert not [name for name in names if name.endswith("_is_known")]
