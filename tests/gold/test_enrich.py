"""Orders with and without state, repeated, broken and woken; and a crash after each write on the way."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from gold import enrich as steps
from gold.conservation import balance_facts
from gold.orders import ORDERS
from jobs.pipeline import ENRICHMENTS, ENTITIES
from jobs.steps import enriching, merging
from jobs.streams import catch_up
from lakehouse.errors import LakehouseError
from lakehouse.settings import Settings
from tests.lake import expected, land_literally, own_home, read, tables
from tests.messages import item, message, order, tombstone, user
from tests.oracle import Message, Oracle

FIRST = [
    user(1),
    user(2, when=5, place=1, deletedAt=1_767_225_900_000),
    item(1),
    order(1, place=1),
    order(2, place=2, user=9),
    order(3, place=3, item=9),
    order(4, place=4, user=2),
    order(5, place=5, user=2, when=4),
    order(1, place=6, price=9.9),
    order(6, place=7, user=9, item=9),
    message("orders", b'{"invoiceId": 1', key="7", when=10, place=8),
]
THEN = [
    user(9, place=2),
    item(9, place=1),
    user(2, "back", when=20, place=3),
    order(2, place=12, user=9),
    order(1, place=13),
    order(7, place=14),
    order(8, place=15, user=77),
    order(8, place=16, user=77),
    order(9, place=17, userId="1"),
    tombstone("orders", "1", when=10, place=18),
]


def catch_up_once(spark: SparkSession, settings: Settings) -> None:
    catch_up(settings, merging(spark, settings, ENTITIES))
    catch_up(settings, enriching(spark, settings, ENRICHMENTS))


@pytest.fixture(scope="module")
def first(spark: SparkSession, settings: Settings, tmp_path_factory: pytest.TempPathFactory) -> Settings:
    run = settings.run.model_copy(update={"retries": 0})
    own = own_home(settings, tmp_path_factory.mktemp("first")).model_copy(update={"run": run})
    land_literally(spark, own, FIRST)
    catch_up_once(spark, own)
    return own


@pytest.fixture
def lake(first: Settings, tmp_path: Path) -> Settings:
    """A copy of the lake in which the first round is done."""
    shutil.copytree(first.home, tmp_path, dirs_exist_ok=True)
    return own_home(first, tmp_path)


def test_the_first_round(first: Settings) -> None:
    oracle = Oracle().run(FIRST)
    assert tables(first) == expected(oracle)
    assert [(row["line_item_id"], row["reason"], row["missing_entity"], row["missing_key"]) for row in oracle.waiting] == [
        (2, "missing", "users", "9"),
        (3, "missing", "items", "9"),
        (4, "deleted", "users", "2"),
        (6, "missing", "users", "9"),
    ]


def fail_after(write: Callable[..., None]) -> Callable[..., None]:
    def write_and_fail(*args: Any, **kwargs: Any) -> None:
        write(*args, **kwargs)
        raise RuntimeError("power cut")

    return write_and_fail


@pytest.mark.parametrize("checkpoint", ["kept", "lost"])
@pytest.mark.parametrize("write", ["quarantine_malformed", "_write_gold", "_settle_waiting", "_write_duplicates"])
def test_a_crash_after_any_write_changes_nothing(
    spark: SparkSession, lake: Settings, monkeypatch: pytest.MonkeyPatch, write: str, checkpoint: str
) -> None:
    land_literally(spark, lake, THEN)
    with monkeypatch.context() as patch:
        patch.setattr(steps, write, fail_after(getattr(steps, write)))
        with pytest.raises(LakehouseError, match="^enrich orders: .*power cut"):
            catch_up_once(spark, lake)
    if checkpoint == "lost":
        shutil.rmtree(lake.checkpoint_path(ORDERS.gold_table))
    catch_up_once(spark, lake)
    assert tables(lake) == expected(Oracle().run(FIRST).run(THEN))
    assert balance_facts(spark, lake, ORDERS).holds


def test_attempts_count_how_often_an_order_was_tried(spark: SparkSession, lake: Settings) -> None:
    land_literally(spark, lake, [item(1, 2.0, when=30, place=5), user(9, place=2)])
    catch_up_once(spark, lake)
    waiting = read(lake, ORDERS.waiting.name)
    assert sorted((row["line_item_id"], row["missing_key"], row["attempts"]) for row in waiting) == [
        (3, "9", 1),
        (4, "2", 1),
        (6, "9", 2),
    ]


def enriched(settings: Settings) -> list[tuple[int, str, float]]:
    rows = read(settings, ORDERS.gold_table)
    return sorted((row["line_item_id"], row["user"]["first_name"], row["item"]["price"]) for row in rows)


def test_gold_keeps_the_state_that_was_the_latest_then(spark: SparkSession, lake: Settings) -> None:
    land_literally(spark, lake, [user(1, "Zoë", when=20, place=5), item(1, 2.0, when=20, place=6), order(10, place=30)])
    catch_up_once(spark, lake)
    assert enriched(lake) == [(1, "Ada", 1.5), (5, "Ada", 1.5), (10, "Zoë", 2.0)]


POISON = {
    "microseconds": {"createdAt": 1_767_225_600_000_000},
    "the largest number": {"createdAt": 2**63 - 1},
    "the largest number, where a time is optional": {"paidAt": 2**63 - 1},
    "the first day of all": {"createdAt": -62_135_596_800_000},
    "the last day of all": {"createdAt": 253_402_300_799_999},
}


@pytest.mark.parametrize("fields", POISON.values(), ids=POISON)
def test_a_time_that_is_none_is_no_poison(spark: SparkSession, lake: Settings, fields: dict[str, int]) -> None:
    poison: list[Message] = [order(20, place=40, **fields), order(21, place=41)]
    land_literally(spark, lake, poison)
    catch_up_once(spark, lake)
    assert tables(lake) == expected(Oracle().run(FIRST).run(poison))
