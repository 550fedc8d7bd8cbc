"""Orders with and without state, duplicate, malformed and retried ones; and a crash after each write."""

import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import typer
from pyspark.sql import SparkSession

from pulsar_lakehouse.cli.quarantine import app as quarantine_app
from pulsar_lakehouse.contracts.checks import quarantine
from pulsar_lakehouse.domains.shop.declarations.orders import ORDERS
from pulsar_lakehouse.errors import LakehouseError
from pulsar_lakehouse.gold.enrichment.declaration import ACTIONS
from pulsar_lakehouse.gold.enrichment.reconciliation import reconcile_facts
from pulsar_lakehouse.jobs.steps import enriching, merging
from pulsar_lakehouse.jobs.streams import catch_up
from pulsar_lakehouse.settings import Settings
from pulsar_lakehouse.tables.lake import Lake
from tests.crashes import ADD_TO_GOLD, DISCARD, DUPLICATES, MALFORMED, PLACING, crash_after
from tests.lake import expected, land_literally, own_home, read, tables
from tests.messages import at, item, message, millis, order, tombstone, user
from tests.model.explorer import worlds_after
from tests.model.protocol import Scope
from tests.model.recorded import shown, steps_of_enrichment
from tests.model.test_model import model_of
from tests.model.world import Bronze, World
from tests.oracle import Message, Oracle
from tests.oracle_lookups import Row
from tests.shop import ENRICHMENTS, ENTITIES, joins_of


def merged(id: int, *, into: int, place: int) -> Message:
    return user(id, place=place, mergedAt=millis(at(0)), parentUserId=into)


FIRST = [
    # All that orders 1 and 13 need is there. Order 1 comes twice, with another price.
    user(1),
    item(1),
    item(2, place=2),
    order(1, place=1),
    order(1, place=6, price=9.9),
    order(13, place=12, item=2),
    # User 9 and item 9 are missing.
    order(2, place=2, user=9),
    order(3, place=3, item=9),
    order(6, place=7, user=9, item=9),
    # User 2 was deleted before order 4, but after order 5.
    user(2, when=5, place=1, deletedAt=millis(at(5))),
    order(4, place=4, user=2),
    order(5, place=5, user=2, when=4),
    # User 3 was merged into 4, who is missing, 5 and 6 into each other, and 7 into 1.
    merged(3, into=4, place=9),
    merged(5, into=6, place=10),
    merged(6, into=5, place=11),
    merged(7, into=1, place=12),
    order(10, place=9, user=3),
    order(11, place=10, user=5),
    order(12, place=11, user=7),
    # A payload that is cut off, and an order that pays the customer, before it was created
    message("orders", b'{"invoiceId": 1', key="7", when=10, place=8),
    order(14, place=30, price=-1.0, paidAt=millis(at(9))),
]
THEN = [
    # What was missing comes, user 2 is back, and user 6 was not merged after all.
    user(9, place=2),
    item(9, place=1),
    user(4, place=13),
    user(2, "back", when=20, place=3),
    user(6, "alone", when=1, place=14),
    # Orders 1 and 2 come again. Of the new ones, 8 comes twice, and its user is missing.
    order(1, place=13),
    order(2, place=19, user=9),
    order(7, place=14),
    order(8, place=15, user=77),
    order(8, place=16, user=77),
    # A number as text, and a tombstone of an order
    order(9, place=17, userId="1"),
    tombstone("orders", "1", when=10, place=18),
    # The price of item 1 was another one before its orders, and item 2 was deleted before its order.
    item(1, 2.0, when=7, place=3),
    tombstone("items", "2", when=5, place=4),
]


def merge_changes(lake: Lake) -> None:
    catch_up(lake.settings, merging(lake, ENTITIES))


def enrich_orders(lake: Lake) -> None:
    catch_up(lake.settings, enriching(lake, ENRICHMENTS))


def copy_of(project: Settings, home: Path) -> Settings:
    shutil.copytree(project.home, home, dirs_exist_ok=True)
    return own_home(project, home)


@pytest.fixture(scope="module")
def first(lake: Lake, tmp_path_factory: pytest.TempPathFactory) -> Settings:
    """A project after the first round."""
    run = lake.settings.run.model_copy(update={"retries": 0})
    own = own_home(lake.settings, tmp_path_factory.mktemp("first")).model_copy(update={"run": run})
    land_literally(Lake(lake.spark, own), FIRST)
    merge_changes(Lake(lake.spark, own))
    enrich_orders(Lake(lake.spark, own))
    return own


@pytest.fixture(scope="module")
def then(spark: SparkSession, first: Settings, tmp_path_factory: pytest.TempPathFactory) -> Settings:
    """A project in which the orders of the second round are still to be enriched."""
    own = copy_of(first, tmp_path_factory.mktemp("then"))
    land_literally(Lake(spark, own), THEN)
    merge_changes(Lake(spark, own))
    return own


def test_the_first_round(first: Settings) -> None:
    oracle = Oracle().run(FIRST)
    assert tables(first) == expected(oracle)
    assert [(row["line_item_id"], row["reason"], keys(row)) for row in oracle.waiting] == [
        (2, "user missing", ["users 9"]),
        (3, "item missing", ["items 9"]),
        (4, "user deleted", ["users 2"]),
        (6, "user missing, item missing", ["users 9", "items 9"]),
        (10, "user missing", ["users 4"]),
        (11, "user merged in a circle", ["users 5"]),
    ]


def keys(waiting: Row) -> list[str]:
    return [f"{state['entity']} {state['key']}" for state in waiting["missing"]]


def test_orders_wait_while_there_is_no_state_at_all(lake: Lake, tmp_path: Path) -> None:
    project, orders = own_home(lake.settings, tmp_path), [order(1, place=1), order(2, place=2), order(1, place=3)]
    land_literally(Lake(lake.spark, project), orders)
    merge_changes(Lake(lake.spark, project))
    enrich_orders(Lake(lake.spark, project))
    assert tables(project) == expected(Oracle().run(orders))
    assert {row["reason"] for row in read(project, ORDERS.waiting.name)} == {"user missing, item missing"}


@pytest.mark.parametrize("checkpoint", ["kept", pytest.param("lost", marks=pytest.mark.long)])
def test_crashes_after_one_write_after_the_other_change_nothing(
    spark: SparkSession, then: Settings, tmp_path: Path, checkpoint: str
) -> None:
    project = copy_of(then, tmp_path)
    for write in (MALFORMED, *PLACING, DUPLICATES):
        with crash_after(write), pytest.raises(LakehouseError, match="power cut"):
            enrich_orders(Lake(spark, project))
        if checkpoint == "lost":
            shutil.rmtree(project.checkpoint_path(ORDERS.gold_table))
    enrich_orders(Lake(spark, project))
    assert tables(project) == expected(Oracle().run(FIRST).run(THEN))
    assert reconcile_facts(Lake(spark, project), ORDERS).holds


def test_its_writes_are_a_run_of_the_model(lake: Lake, tmp_path: Path) -> None:
    """An order waits for its user, another one does not, and each batch crashes once it has added to gold."""
    run = lake.settings.run.model_copy(update={"retries": 0})
    project = Lake(lake.spark, own_home(lake.settings, tmp_path).model_copy(update={"run": run}))
    for messages in ([user(1), item(1), order(1, user=9, place=0), order(2, place=1)], [user(9, place=2)]):
        land_literally(project, messages)
        merge_changes(project)
        with crash_after(ADD_TO_GOLD), pytest.raises(LakehouseError, match="power cut"):
            enrich_orders(project)
        enrich_orders(project)
    steps = steps_of_enrichment(project.settings, ORDERS.gold_table, ORDERS.waiting.name)
    waits, comes = ("does add", "does wait"), ("does add", "does end waiting")
    assert steps == ["does plan", *waits, "does commits", "does plan", *comes, "does commits"]
    landed = World(sent=2, acknowledged=2, bronze=Bronze((0, 1), 1, 0))
    scope = Scope(messages=2, writers=("A",), commands=("enrich",), has_engine=False, start=landed)
    assert worlds_after(model_of(scope), steps, shows=shown)


def test_attempts_count_how_often_an_order_was_tried(spark: SparkSession, first: Settings, tmp_path: Path) -> None:
    project = copy_of(first, tmp_path)
    changes = [item(1, 2.0, when=30, place=5), user(9, place=2), user(4, place=3, mergedAt=0, parentUserId=12)]
    land_literally(Lake(spark, project), changes)
    merge_changes(Lake(spark, project))
    enrich_orders(Lake(spark, project))
    assert tables(project) == expected(Oracle().run(FIRST).run(changes))
    waiting = read(project, ORDERS.waiting.name)
    assert sorted((row["line_item_id"], keys(row), row["attempts"]) for row in waiting) == [
        (3, ["items 9"], 1),
        (4, ["users 2"], 1),
        (6, ["items 9"], 2),
        (10, ["users 12"], 2),
        (11, ["users 5"], 1),
    ]


def test_gold_keeps_the_state_that_was_the_latest_then(spark: SparkSession, first: Settings, tmp_path: Path) -> None:
    project = copy_of(first, tmp_path)
    land_literally(
        Lake(spark, project), [user(1, "Zoë", when=20, place=5), item(1, 2.0, when=20, place=6), order(7, place=30)]
    )
    merge_changes(Lake(spark, project))
    enrich_orders(Lake(spark, project))
    enriched = [
        (row["line_item_id"], row["user"]["first_name"], row["item"]["price"]) for row in tables(project)["gold"]
    ]
    assert sorted(enriched) == [(1, "Ada", 1.5), (5, "Ada", 1.5), (7, "Zoë", 1.5), (12, "Ada", 1.5), (13, "Ada", 1.5)]


def test_times_that_are_none_and_the_ends_of_time_are_no_poison(
    spark: SparkSession, first: Settings, tmp_path: Path
) -> None:
    project = copy_of(first, tmp_path)
    orders = [
        order(20, place=40, createdAt=1_767_225_600_000_000),  # in microseconds
        order(21, place=41, createdAt=2**63 - 1),
        order(22, place=42, paidAt=2**63 - 1),
        order(23, place=43, createdAt=253_402_300_799_999),
        order(24, place=44, createdAt=-62_135_596_800_000),
        order(25, place=45),
    ]
    land_literally(Lake(spark, project), orders)
    enrich_orders(Lake(spark, project))
    assert tables(project) == expected(Oracle().run(FIRST).run(orders))


def test_what_is_placed_stays_there_when_a_check_is_stricter_and_all_is_read_again(
    spark: SparkSession, first: Settings, tmp_path: Path
) -> None:
    project = copy_of(first, tmp_path)
    before = tables(project)
    shutil.rmtree(project.checkpoint_path(ORDERS.gold_table))
    stricter = replace(ORDERS, checks={**ORDERS.checks, "is_free": quarantine("price = 0")})
    catch_up(project, enriching(Lake(spark, project), [stricter]))
    assert tables(project) == before
    assert reconcile_facts(Lake(spark, project), ORDERS).holds


def ask(settings: Settings, *arguments: str) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LAKEHOUSE_HOME", str(settings.home))
        typer.main.get_command(quarantine_app)(list(arguments), standalone_mode=False)


def test_orders_can_be_given_up(spark: SparkSession, first: Settings, tmp_path: Path) -> None:
    """Three orders wait for user 9 or item 9. They stay discarded when the state comes and everything is read again."""
    project = copy_of(first, tmp_path)
    with pytest.raises(LakehouseError, match="discard which of them"):
        ask(project, "discard")
    ask(project, "discard", "--key", "9", "--dry-run")
    ask(project, "discard", "--key", "9", "--note", "test orders")
    enrich_orders(Lake(spark, project))
    assert {row["line_item_id"] for row in read(project, ORDERS.waiting.name)} == {4, 10, 11}
    ask(project, "discard", "--key", "9")
    land_literally(Lake(spark, project), [user(9, place=20), item(9, place=20), order(3, place=20, item=9)])
    merge_changes(Lake(spark, project))
    shutil.rmtree(project.checkpoint_path(ORDERS.gold_table))
    enrich_orders(Lake(spark, project))
    discarded = {row["line_item_id"]: row["position"]["entry_id"] for row in read(project, ORDERS.discarded.name)}
    assert discarded == {2: 2, 3: 3, 6: 7}
    assert {row["line_item_id"] for row in read(project, ORDERS.gold_table)} == {1, 5, 12, 13}
    assert {(row["line_item_id"], row["position"]["entry_id"]) for row in read(project, ORDERS.duplicates.name)} == {
        (1, 6),
        (3, 20),
    }
    assert [(row["action"], row["topic"], row["note"]) for row in read(project, ACTIONS.name)] == [
        ("discard", "orders", "test orders")
    ] * 3
    assert reconcile_facts(Lake(spark, project), ORDERS).holds


def test_a_discard_that_is_cut_off_is_done_by_the_next_try(
    spark: SparkSession, first: Settings, tmp_path: Path
) -> None:
    project = copy_of(first, tmp_path)
    ask(project, "discard", "--entity", "items")
    with crash_after(DISCARD), pytest.raises(LakehouseError, match="power cut"):
        enrich_orders(Lake(spark, project))
    enrich_orders(Lake(spark, project))
    assert sorted(row["line_item_id"] for row in read(project, ORDERS.discarded.name)) == [
        3,
        6,
    ]  # 6 also lacks its user
    assert {row["line_item_id"] for row in read(project, ORDERS.waiting.name)} == {2, 4, 10, 11}


@pytest.mark.long
def test_what_has_waited_too_long_is_retried_when_it_is_released(
    spark: SparkSession, first: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = copy_of(first, tmp_path)
    land_literally(Lake(spark, project), [user(9, place=20), item(9, place=20)])
    merge_changes(Lake(spark, project))
    impatient = replace(ORDERS, retry_days=0)
    catch_up(project, enriching(Lake(spark, project), [impatient]))
    assert {row["line_item_id"] for row in read(project, ORDERS.waiting.name)} == {2, 3, 4, 6, 10, 11}
    ask(project, "release", "--key", "9")
    catch_up(project, enriching(Lake(spark, project), [impatient]))
    assert {row["line_item_id"] for row in read(project, ORDERS.waiting.name)} == {4, 10, 11}
    ask(project, "release", "--all")
    ask(project, "release", "--all")
    catch_up(project, enriching(Lake(spark, project), [impatient]))
    assert sorted(row["line_item_id"] for row in read(project, ORDERS.gold_table)) == [1, 2, 3, 5, 6, 12, 13]
    assert reconcile_facts(Lake(spark, project), ORDERS).holds


def test_a_correction_joins_with_the_latest_state_again(spark: SparkSession, first: Settings, tmp_path: Path) -> None:
    """A late price causes the orders of user 1 to be recomputed: they also get the user's current name."""
    project = copy_of(first, tmp_path)
    changes = [user(1, "Zoë", when=20, place=30), item(1, 5.0, when=8, place=31)]
    land_literally(Lake(spark, project), changes)
    merge_changes(Lake(spark, project))
    enrich_orders(Lake(spark, project))
    assert tables(project) == expected(Oracle().run(FIRST).run(changes))
    enriched = {row["line_item_id"]: row["user"]["first_name"] for row in read(project, ORDERS.gold_table)}
    assert enriched[1] == "Zoë"


def test_an_undone_merge_corrects_gold_though_the_checkpoint_was_lost(
    spark: SparkSession, first: Settings, tmp_path: Path
) -> None:
    """Order 12 was joined with user 1, into which its own user 7 was merged."""
    project = copy_of(first, tmp_path)
    changes = [user(7, "Zoë", when=20, place=20)]
    land_literally(Lake(spark, project), changes)
    merge_changes(Lake(spark, project))
    shutil.rmtree(project.checkpoint_path(ORDERS.gold_table))
    enrich_orders(Lake(spark, project))
    assert tables(project) == expected(Oracle().run(FIRST).run(changes, again=True))
    users = {row["line_item_id"]: row["user"]["first_name"] for row in read(project, ORDERS.gold_table)}
    assert users == {1: "Ada", 5: "Ada", 12: "Zoë", 13: "Ada"}


@pytest.mark.long
def test_users_too_can_be_joined_as_of_a_time(lake: Lake, tmp_path: Path) -> None:
    project = own_home(lake.settings, tmp_path)
    # Merges have no time, so a join as of a time does not follow them.
    as_of = (replace(lookup, join="as_of", merged_into=None) for lookup in ORDERS.lookups)
    orders = replace(ORDERS, lookups=tuple(as_of))
    oracle = Oracle(joins=joins_of(orders))
    for messages in (FIRST, THEN):
        land_literally(Lake(lake.spark, project), messages)
        merge_changes(Lake(lake.spark, project))
        catch_up(project, enriching(Lake(lake.spark, project), [orders]))
        assert tables(project) == expected(oracle.run(messages))


@pytest.mark.long
@pytest.mark.parametrize("as_of", [{"items"}, {"users", "items"}], ids=["latest users", "users as of a time"])
def test_an_order_can_do_without_state_until_it_comes(lake: Lake, tmp_path: Path, as_of: set[str]) -> None:
    """Only the users are not required: orders whose item is missing wait."""
    project = own_home(lake.settings, tmp_path)
    users, items = ORDERS.lookups
    if "users" in as_of:
        users = replace(users, join="as_of", merged_into=None)
    orders = replace(ORDERS, lookups=(replace(users, required=False), items))
    oracle = Oracle(joins=joins_of(orders))
    for messages in (FIRST, THEN):
        land_literally(Lake(lake.spark, project), messages)
        merge_changes(Lake(lake.spark, project))
        catch_up(project, enriching(Lake(lake.spark, project), [orders]))
        assert tables(project) == expected(oracle.run(messages))
