"""The tables must hold what landed: a row that is missing, duplicated or unknown is found and named."""

import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.types import StructField, StructType

from pulsar_lakehouse.cli import commands as cli
from pulsar_lakehouse.domains.shop.declarations.orders import ORDERS
from pulsar_lakehouse.domains.shop.declarations.users import USERS
from pulsar_lakehouse.errors import ReconciliationError
from pulsar_lakehouse.gold.enrichment.reconciliation import reconcile_facts
from pulsar_lakehouse.jobs.steps import enriching, merging, reconcile_all
from pulsar_lakehouse.jobs.streams import catch_up
from pulsar_lakehouse.local import broker
from pulsar_lakehouse.reconciliation import Reconciliation
from pulsar_lakehouse.settings import Settings
from pulsar_lakehouse.silver.reconciliation import reconcile_entity
from pulsar_lakehouse.tables.lake import Lake
from tests.lake import land_literally, own_home
from tests.messages import item, message, order, tombstone, user
from tests.shop import ENRICHMENTS, ENTITIES

MESSAGES = [
    user(1),
    user(1, "Zoë", when=1, place=1)._replace(key=None),
    tombstone("users", "2", place=2),
    message("users", b"null", key="3", place=3),
    item(1),
    order(1, place=1),
    order(2, place=2),
    order(1, place=3),
    order(3, place=4, user=9),
    message("orders", b"{}", key="4", place=5),
]


@pytest.fixture(scope="module")
def whole(lake: Lake, tmp_path_factory: pytest.TempPathFactory) -> Settings:
    own = own_home(lake.settings, tmp_path_factory.mktemp("whole"))
    land_literally(Lake(lake.spark, own), MESSAGES)
    catch_up(own, merging(Lake(lake.spark, own), ENTITIES))
    catch_up(own, enriching(Lake(lake.spark, own), ENRICHMENTS))
    return own


@pytest.fixture
def project(whole: Settings, tmp_path: Path) -> Settings:
    """A copy that a test may damage."""
    shutil.copytree(whole.home, tmp_path, dirs_exist_ok=True)
    return own_home(whole, tmp_path)


def test_it_holds(spark: SparkSession, whole: Settings) -> None:
    assert reconcile_all(Lake(spark, whole)) == [
        Reconciliation(topic="items", landed=1, accounted={"current": 1, "superseded": 0, "malformed": 0}),
        Reconciliation(topic="users", landed=4, accounted={"current": 2, "superseded": 1, "malformed": 1}),
        Reconciliation(
            topic="orders",
            landed=5,
            accounted={"enriched": 2, "waiting": 1, "duplicates": 1, "discarded": 0, "malformed": 1},
        ),
    ]


def test_lost_orders_are_found(spark: SparkSession, project: Settings) -> None:
    for place, table in ((1, ORDERS.gold_table), (3, ORDERS.duplicates.name), (4, ORDERS.waiting.name)):
        Lake(spark, project).table(table).delta.delete(f"position.entry_id = {place}")
    reconciliation = reconcile_facts(Lake(spark, project), ORDERS)
    assert (reconciliation.holds, reconciliation.difference) == (False, 3)
    assert [problem.partition(" ")[0] for problem in reconciliation.problems] == ["3"]
    assert "landed, but in no table" in reconciliation.problems[0]


def test_an_order_that_is_there_twice_is_found(spark: SparkSession, project: Settings) -> None:
    Lake(spark, project).table(ORDERS.gold_table).append(
        Lake(spark, project).table(ORDERS.gold_table).read().where("line_item_id = 2")
    )
    reconciliation = reconcile_facts(Lake(spark, project), ORDERS)
    assert (reconciliation.holds, reconciliation.difference) == (False, -1)
    assert reconciliation.problems == ("1 in more than one place, such as 0/7/2/0",)


def test_a_lost_order_does_not_make_up_for_one_that_is_there_twice(spark: SparkSession, project: Settings) -> None:
    Lake(spark, project).table(ORDERS.gold_table).append(
        Lake(spark, project).table(ORDERS.gold_table).read().where("line_item_id = 2")
    )
    Lake(spark, project).table(ORDERS.waiting.name).delta.delete()
    reconciliation = reconcile_facts(Lake(spark, project), ORDERS)
    assert (reconciliation.holds, reconciliation.difference) == (False, 0)
    assert len(reconciliation.problems) == 2
    assert reconciliation.problems[1] == "1 in more than one place, such as 0/7/2/0"


def test_an_order_from_nowhere_is_found(spark: SparkSession, project: Settings) -> None:
    waiting = Lake(spark, project).table(ORDERS.waiting.name).read()
    stranger = waiting.selectExpr(
        "* EXCEPT (position)",
        "named_struct('partition', 1, 'ledger_id', 8L, 'entry_id', 9L, 'batch_index', 0) AS position",
    )
    Lake(spark, project).table(ORDERS.waiting.name).append(stranger.select(*waiting.columns))
    reconciliation = reconcile_facts(Lake(spark, project), ORDERS)
    assert reconciliation.problems == ("1 in a table, but never landed, such as 1/8/9/0",)


def test_a_lost_user_is_found(spark: SparkSession, project: Settings) -> None:
    Lake(spark, project).table(USERS.table.name).delta.delete("id = 1")
    reconciliation = reconcile_entity(Lake(spark, project), USERS)
    assert not reconciliation.holds
    assert reconciliation.landed == 4
    assert reconciliation.problems[0].startswith("2 landed, but not merged (")


def test_a_user_that_is_there_twice_is_found(spark: SparkSession, project: Settings) -> None:
    Lake(spark, project).table(USERS.table.name).append(
        Lake(spark, project).table(USERS.table.name).read().where("id = 1")
    )
    reconciliation = reconcile_entity(Lake(spark, project), USERS)
    assert (reconciliation.landed, reconciliation.problems) == (
        4,
        ("some keys have more than one row in silver.users",),
    )


def test_a_user_from_nowhere_is_found(spark: SparkSession, project: Settings) -> None:
    stranger = (
        Lake(spark, project).table(USERS.table.name).read().where("id = 1").selectExpr("77L AS id", "* EXCEPT (id)")
    )
    Lake(spark, project).table(USERS.table.name).append(stranger)
    assert reconcile_entity(Lake(spark, project), USERS).problems == (
        "silver.users has 3 rows, 2 of them from messages that landed",
    )


def test_a_lost_malformed_message_is_found(spark: SparkSession, project: Settings) -> None:
    Lake(spark, project).table("quarantine.malformed").delta.delete("topic = 'users'")
    reconciliation = reconcile_entity(Lake(spark, project), USERS)
    assert reconciliation.problems == ("1 malformed messages landed, and 0 are in quarantine.malformed",)


def test_what_was_merged_before_the_contract_became_stricter_stays_so(spark: SparkSession, whole: Settings) -> None:
    fields = [StructField(each.name, each.dataType, nullable=each.name != "lastName") for each in USERS.topic.fields]
    stricter = replace(USERS, topic=replace(USERS.topic, fields=StructType(fields)))
    assert reconcile_entity(Lake(spark, whole), stricter) == reconcile_entity(Lake(spark, whole), USERS)


def test_the_command_names_the_difference_and_what_is_lost_of_a_topic(
    spark: SparkSession, project: Settings, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    Lake(spark, project).table(ORDERS.waiting.name).delta.delete()
    monkeypatch.setenv("LAKEHOUSE_HOME", str(project.home))
    monkeypatch.setattr(broker, "endpoint", lambda settings: None)
    refusal = "pulsar_lakehouse.cli.reconcile.refusal"
    monkeypatch.setattr(refusal, lambda settings, topic, endpoint: "lost" if topic == USERS.topic else None)
    with pytest.raises(ReconciliationError, match=r"^orders: 1 landed, but in no table .*, such as 0/7/4/0\. lost$"):
        cli.app(["reconcile"], standalone_mode=False)
    assert "does not hold" in capsys.readouterr().out
