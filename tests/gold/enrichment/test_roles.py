"""Orders with two lookups of one entity: the user who ordered, and a second user in the role of a receiver."""

from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from pulsar_lakehouse.domains.shop.declarations.orders import ORDERS
from pulsar_lakehouse.gold.enrichment.declaration import Enrichment
from pulsar_lakehouse.gold.enrichment.reconciliation import reconcile_facts
from pulsar_lakehouse.jobs.steps import enriching
from pulsar_lakehouse.jobs.streams import catch_up
from pulsar_lakehouse.settings import Settings
from pulsar_lakehouse.tables.lake import Lake
from tests.gold.enrichment.test_enrich import merge_changes
from tests.lake import land_literally, own_home, read
from tests.messages import at, millis, order, user
from tests.oracle import Message

USER, _ = ORDERS.lookups
TRANSFERS = replace(
    ORDERS, lookups=(replace(USER, name="sender"), replace(USER, name="receiver", on="item_id")), publish_to=None
)


SENDER, RECEIVER = TRANSFERS.lookups
MAYBE_RECEIVED = replace(TRANSFERS, lookups=(SENDER, replace(RECEIVER, required=False)))


def run(lake: Lake, *messages: Message, transfers: Enrichment = TRANSFERS) -> None:
    land_literally(lake, messages)
    merge_changes(lake)
    catch_up(lake.settings, enriching(lake, [transfers]))


def in_gold(project: Settings) -> dict[int, tuple[str | None, ...]]:
    rows = read(project, TRANSFERS.gold_table)
    users = {row["line_item_id"]: (row["sender"], row["receiver"]) for row in rows}
    return {line: tuple(user and user["first_name"] for user in both) for line, both in users.items()}


def test_changes_of_an_entity_correct_whatever_lookup_has_the_key(lake: Lake, tmp_path: Path) -> None:
    """Ada and Bob send to each other. Then Bob was merged into Eve, and Ada turns out to have been deleted before."""
    project = own_home(lake.settings, tmp_path)
    sent = [order(1, place=1, user=1, item=2), order(2, place=2, user=2, item=1), order(3, place=3, user=2, item=3)]
    run(Lake(lake.spark, project), user(1, "Ada", place=1), user(2, "Bob", place=2), *sent)
    assert in_gold(project) == {1: ("Ada", "Bob"), 2: ("Bob", "Ada")}
    run(
        Lake(lake.spark, project),
        user(3, "Eve", place=3),
        user(2, "Bob", when=1, place=4, mergedAt=millis(at(0)), parentUserId=3),
    )
    assert in_gold(project) == {1: ("Ada", "Eve"), 2: ("Eve", "Ada"), 3: ("Eve", "Eve")}
    run(Lake(lake.spark, project), user(1, "Ada", when=2, place=5, deletedAt=millis(at(2))))
    assert in_gold(project) == {3: ("Eve", "Eve")}
    assert reconcile_facts(Lake(lake.spark, project), TRANSFERS).holds


@pytest.mark.long
def test_a_receiver_who_is_not_required_comes_goes_and_comes_again(lake: Lake, tmp_path: Path) -> None:
    """Bob turns out to have been merged into Eve, who is not there yet, and then deleted before, which is undone."""
    project = own_home(lake.settings, tmp_path)
    run_maybe = partial(run, Lake(lake.spark, project), transfers=MAYBE_RECEIVED)
    sent = [order(1, place=1, user=1, item=2), order(2, place=2, user=2, item=1)]
    run_maybe(user(1, "Ada", place=1), *sent)
    assert in_gold(project) == {1: ("Ada", None)}
    run_maybe(user(2, "Bob", place=2))
    assert in_gold(project) == {1: ("Ada", "Bob"), 2: ("Bob", "Ada")}
    run_maybe(user(2, "Bob", when=1, place=3, mergedAt=millis(at(0)), parentUserId=3))
    assert in_gold(project) == {1: ("Ada", None)}
    run_maybe(user(3, "Eve", place=4))
    assert in_gold(project) == {1: ("Ada", "Eve"), 2: ("Eve", "Ada")}
    run_maybe(user(3, "Eve", when=2, place=5, deletedAt=millis(at(2))))
    assert in_gold(project) == {1: ("Ada", None)}
    run_maybe(user(3, "Eve", when=3, place=6))
    assert in_gold(project) == {1: ("Ada", "Eve"), 2: ("Eve", "Ada")}
    assert reconcile_facts(Lake(lake.spark, project), MAYBE_RECEIVED).holds
