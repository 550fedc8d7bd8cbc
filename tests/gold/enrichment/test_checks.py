"""Checks that end the enrichment, killed and run again: nothing is lost, and nothing comes twice."""

from dataclasses import replace
from pathlib import Path

import pytest

from pulsar_lakehouse.contracts.checks import fail
from pulsar_lakehouse.domains.shop.declarations.orders import ORDERS
from pulsar_lakehouse.errors import LakehouseError, PermanentError
from pulsar_lakehouse.jobs.steps import enriching, merging, reconcile_all
from pulsar_lakehouse.jobs.streams import catch_up
from pulsar_lakehouse.tables.lake import Lake
from tests.crashes import ADD_TO_GOLD, CORRECT_GOLD, crash_after
from tests.lake import expected, land_literally, own_home, tables
from tests.messages import item, order, user
from tests.oracle import Message, Oracle
from tests.shop import ENTITIES

STOPPING = replace(
    ORDERS,
    checks={
        **ORDERS.checks,
        "user_has_a_name": fail("user.first_name IS NOT NULL"),
        "item_has_a_price": fail("item.price > 0"),
    },
)
FIRST = [user(1), item(1), order(1, place=1)]
NAMELESS = [user(2, None, place=1), order(2, place=2), order(3, place=3, user=2), order(4, place=4, user=9)]
NAMED = [user(2, "Bob", when=1, place=2)]
FREE = [item(1, 0.0, when=5, place=1)]
PRICED = [item(1, 2.0, when=6, place=2)]


def run(lake: Lake, messages: list[Message]) -> None:
    land_literally(lake, messages)
    catch_up(lake.settings, merging(lake, ENTITIES))
    catch_up(lake.settings, enriching(lake, [STOPPING]))


@pytest.mark.parametrize(
    ("wrong", "mended", "line"),
    [
        (NAMELESS, NAMED, 'user_has_a_name, such as {"invoice_id":1,"line_item_id":3,"position":{.*"entry_id":3,'),
        pytest.param(
            *(FREE, PRICED, 'item_has_a_price, such as {"invoice_id":1,"line_item_id":1,"position":{.*"entry_id":1,'),
            marks=pytest.mark.long,
        ),
    ],
    ids=["a new fact", "a corrected fact"],
)
def test_no_row_that_fails_is_written_and_all_goes_on_once_its_state_is_corrected(
    lake: Lake, tmp_path: Path, wrong: list[Message], mended: list[Message], line: str
) -> None:
    once = lake.settings.run.model_copy(update={"retries": 0})
    project = own_home(lake.settings, tmp_path).model_copy(update={"run": once})
    run(Lake(lake.spark, project), FIRST)
    before = tables(project)
    for messages in (wrong, []):
        with pytest.raises(PermanentError, match=f"^enrich orders: gold.enriched_orders: .*: 1 with {line}"):
            run(Lake(lake.spark, project), messages)
        assert {name: tables(project)[name] for name in ("gold", "waiting")} == {
            name: before[name] for name in ("gold", "waiting")
        }
    write = ADD_TO_GOLD if wrong is NAMELESS else CORRECT_GOLD
    with crash_after(write), pytest.raises(LakehouseError, match="power cut"):
        run(Lake(lake.spark, project), mended)
    run(Lake(lake.spark, project), [])
    assert tables(project) == expected(Oracle().run(FIRST).run([*wrong, *mended]))
    assert all(reconciliation.holds for reconciliation in reconcile_all(Lake(lake.spark, project)))
