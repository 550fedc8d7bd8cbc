"""Facts that are joined, as of their time, with state that is made of partial updates."""

from dataclasses import replace
from pathlib import Path

from pulsar_lakehouse.domains.shop.declarations.items import ITEMS
from pulsar_lakehouse.domains.shop.declarations.orders import ORDERS
from pulsar_lakehouse.gold.enrichment.reconciliation import reconcile_facts
from pulsar_lakehouse.jobs.steps import enriching, merging
from pulsar_lakehouse.jobs.streams import catch_up
from pulsar_lakehouse.tables.lake import Lake
from tests.lake import land_literally, own_home, read
from tests.messages import item, order
from tests.oracle import Message

PARTIAL = replace(ITEMS, ignore_null_updates=("category",), checks={})
BOUGHT = replace(ORDERS, lookups=(replace(ORDERS.lookups[1], entity=PARTIAL),), checks={}, publish_to=None)


def test_late_state_corrects_facts_of_versions_that_take_a_value_of_it(lake: Lake, tmp_path: Path) -> None:
    """The item has its category from minute 0 or 2. Its version of minute 5 only tells a price."""
    own = Lake(lake.spark, own_home(lake.settings, tmp_path))

    def run(*messages: Message) -> dict[int, tuple[str, float]]:
        land_literally(own, messages)
        catch_up(own.settings, merging(own, [PARTIAL]))
        catch_up(own.settings, enriching(own, [BOUGHT]))
        rows = read(own.settings, BOUGHT.gold_table)
        return {row["line_item_id"]: (row["item"]["category"], row["item"]["price"]) for row in rows}

    sold = [order(1, place=1, when=1), order(2, place=2, when=10)]
    assert run(item(1, category="food"), item(1, 2.0, when=5, place=1), *sold) == {1: ("food", 1.5), 2: ("food", 2.0)}
    assert run(item(1, when=2, place=2, category="toys")) == {1: ("food", 1.5), 2: ("toys", 2.0)}
    assert reconcile_facts(own, BOUGHT).holds
