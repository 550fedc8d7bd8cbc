"""Fixed contracts: retried messages end where they would be if the contract had been right from the start."""

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import typer
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructField, StructType

from pulsar_lakehouse.cli import quarantine as cli_quarantine
from pulsar_lakehouse.contracts.checks import quarantine
from pulsar_lakehouse.contracts.decoding import MALFORMED
from pulsar_lakehouse.contracts.topics import Topic
from pulsar_lakehouse.domains.shop.declarations.items import ITEMS
from pulsar_lakehouse.domains.shop.declarations.orders import ORDERS
from pulsar_lakehouse.domains.shop.declarations.users import USERS
from pulsar_lakehouse.errors import LakehouseError
from pulsar_lakehouse.gold.enrichment.backfill import Scope, backfill
from pulsar_lakehouse.gold.enrichment.declaration import ACTIONS, Enrichment
from pulsar_lakehouse.gold.enrichment.reconciliation import reconcile_facts
from pulsar_lakehouse.jobs import retry_malformed as steps
from pulsar_lakehouse.jobs import steps as declared_steps
from pulsar_lakehouse.jobs.steps import enriching, merging
from pulsar_lakehouse.jobs.streams import catch_up
from pulsar_lakehouse.pipeline.declared import Pipeline
from pulsar_lakehouse.settings import Settings
from pulsar_lakehouse.silver.entity import Entity
from pulsar_lakehouse.silver.merge import merge_batch
from pulsar_lakehouse.silver.reconciliation import reconcile_entity
from pulsar_lakehouse.tables.lake import Lake
from tests import oracle
from tests.crashes import Write, crash_after, fail_after
from tests.gold.enrichment.test_properties import numbered
from tests.lake import expected, land_literally, own_home, read, tables, versions
from tests.messages import item, message, order, user
from tests.oracle import CONTRACTS, Message, Oracle
from tests.shop import SHOP


def without(message: Message, field: str) -> Message:
    """The message with one field of its payload set to null."""
    assert message.payload
    return message._replace(
        payload=message.payload.replace(f'"{field}": '.encode(), f'"{field}": null, "was": '.encode())
    )


MESSAGES = [
    user(1),
    without(user(2, place=1), "createdAt"),
    user(3, "new", when=2, place=2),
    without(user(3, "old", when=1, place=3), "createdAt"),
    message("users", {"id": 4, "deletedAt": "no time"}, key="4", place=4),
    message("users", b"null", key="5", place=5),
    item(1),
    order(1, place=1, user=2),
    without(order(2, place=2), "price"),
    without(order(3, place=3, user=9), "price"),
    order(4, place=4),
    without(order(4, place=5), "price"),
    order(5, place=6, price="free"),
    order(6, place=7, price=-1.5),
]


def relaxed(topic: Topic, name: str) -> Topic:
    """The topic, with a field no longer required."""
    fields = [
        StructField(each.name, each.dataType, each.nullable or each.name == name, each.metadata)
        for each in topic.fields
    ]
    return replace(topic, fields=StructType(fields))


FIXED_USERS = replace(USERS, topic=relaxed(USERS.topic, "createdAt"))
FIXED_ORDERS = replace(ORDERS, topic=relaxed(ORDERS.topic, "price"), checks={})


@pytest.fixture(scope="module")
def strict(lake: Lake, tmp_path_factory: pytest.TempPathFactory) -> Settings:
    """A project that was filled under the contracts that are too strict."""
    own = own_home(lake.settings, tmp_path_factory.mktemp("strict"))
    land_literally(Lake(lake.spark, own), MESSAGES)
    catch_up(own, merging(Lake(lake.spark, own), [USERS, ITEMS]))
    catch_up(own, enriching(Lake(lake.spark, own), [ORDERS]))
    return own


@pytest.fixture
def project(strict: Settings, tmp_path: Path) -> Settings:
    shutil.copytree(strict.home, tmp_path, dirs_exist_ok=True)
    return own_home(strict, tmp_path)


@pytest.fixture
def fixed(monkeypatch: pytest.MonkeyPatch) -> dict[str, list[Any]]:
    """What the tables hold if the contracts are right from the start, and no check rejects an order."""
    monkeypatch.setattr(oracle, "keeps_checks", lambda topic, row: True)
    monkeypatch.setitem(CONTRACTS, "users", {**CONTRACTS["users"], "createdAt": "time"})
    monkeypatch.setitem(CONTRACTS, "orders", {**CONTRACTS["orders"], "price": "double"})
    return expected(Oracle().run(MESSAGES))


def retry(lake: Lake, *, dry_run: bool = False) -> list[tuple[str, int, int]]:
    done = [
        steps.retry_changes(lake, FIXED_USERS, dry_run=dry_run),
        steps.retry_facts(lake, FIXED_ORDERS, dry_run=dry_run),
    ]
    return [(each.topic, each.malformed, each.sound) for each in done]


def reasons(settings: Settings) -> dict[tuple[str, int], str]:
    rows = read(settings, "quarantine.malformed")
    return {(row["topic"], row["position"]["entry_id"]): row["reason"] for row in rows}


def actions(settings: Settings) -> list[tuple[str, str, int]]:
    return sorted((row["action"], row["topic"], row["position"]["entry_id"]) for row in read(settings, ACTIONS.name))


def test_what_keeps_the_fixed_contract_goes_where_it_belongs(
    spark: SparkSession, project: Settings, fixed: dict[str, list[Any]]
) -> None:
    assert reasons(project)["orders", 7] == "fails price_is_an_amount"
    assert retry(Lake(spark, project)) == [("users", 4, 2), ("orders", 5, 4)]
    assert reasons(project) == {
        ("users", 4): "deletedAt is no timestamp_millis: no time",
        ("users", 5): "not a JSON object",
        ("orders", 6): "price is no double: free",
    }
    assert actions(project) == [
        ("retry", "orders", 2),
        ("retry", "orders", 3),
        ("retry", "orders", 5),
        ("retry", "orders", 7),
        ("retry", "users", 1),
        ("retry", "users", 3),
    ]
    catch_up(project, enriching(Lake(spark, project), [FIXED_ORDERS]))
    assert tables(project) == fixed
    before = versions(project)
    assert retry(Lake(spark, project)) == [("users", 2, 0), ("orders", 1, 0)]
    assert versions(project) == before


@pytest.mark.long
def test_crashes_after_one_write_after_the_other_change_nothing(
    spark: SparkSession, project: Settings, fixed: dict[str, list[Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    noted, settled = Write("append_missing", ACTIONS.name), Write("merge", MALFORMED.name)
    for place in ("merge_batch", "enrich_messages"):
        with monkeypatch.context() as patch:
            patch.setattr(steps, place, fail_after(getattr(steps, place)))
            with pytest.raises(RuntimeError, match="power cut"):
                retry(Lake(spark, project))
        for write in (noted, settled):
            with crash_after(write), pytest.raises(RuntimeError, match="power cut"):
                retry(Lake(spark, project))
    retry(Lake(spark, project))
    catch_up(project, enriching(Lake(spark, project), [FIXED_ORDERS]))
    assert tables(project) == fixed
    assert len(actions(project)) == 6
    assert reconcile_entity(Lake(spark, project), FIXED_USERS).holds
    assert reconcile_facts(Lake(spark, project), FIXED_ORDERS).holds


def test_what_is_to_be_retried_is_no_loss(spark: SparkSession, project: Settings) -> None:
    balance = reconcile_entity(Lake(spark, project), FIXED_USERS)
    assert balance.accounted == {"current": 2, "superseded": 0, "malformed": 2, "to be retried": 2}
    assert balance.holds
    assert reconcile_facts(Lake(spark, project), FIXED_ORDERS).holds


def retry_command(
    pipeline: Pipeline,
    project: Settings,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    *arguments: str,
) -> str:
    """What `lakehouse quarantine retry` prints."""
    monkeypatch.setenv("LAKEHOUSE_HOME", str(project.home))
    for module in (cli_quarantine, declared_steps):
        monkeypatch.setattr(module, "pipeline_of", lambda _: pipeline)
    capsys.readouterr()
    typer.main.get_command(cli_quarantine.app)(["retry", *arguments], standalone_mode=False)
    return capsys.readouterr().out


def test_the_command(
    spark: SparkSession, project: Settings, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def run(*arguments: str) -> str:
        return retry_command(replace(SHOP, entities=(FIXED_USERS, ITEMS)), project, monkeypatch, capsys, *arguments)

    before = versions(project)
    assert run("--dry-run") == (
        "users: 2 of 4 malformed messages satisfy the contract now; nothing was done\n"
        "items: 0 of 0 malformed messages satisfy the contract now; nothing was done\n"
        "orders: 0 of 5 malformed messages satisfy the contract now; nothing was done\n"
    )
    assert versions(project) == before
    assert run("--topic", "users") == "users: 2 of 4 malformed messages satisfy the contract now and left quarantine\n"
    with pytest.raises(LakehouseError, match=r"^stores: no such topic; there are users, items, orders$"):
        run("--topic", "stores")


def parcels(sku: str, **more: Any) -> Enrichment:
    """Parcels, each of whose lines is a row."""
    fields = f"id BIGINT NOT NULL, at TIMESTAMP_MILLIS NOT NULL, lines ARRAY<STRUCT<sku: {sku}, cents: BIGINT>>"
    return Enrichment(
        topic=Topic("parcels", fields, rows="lines"),
        columns="id, message.position.row AS line, row.sku AS sku, row.cents AS cents, at",
        keys=("id", "line"),
        event_time="at",
        day="day",
        lookups=(),
        **more,
    )


STRICT = parcels("STRING NOT NULL", checks={"is_priced": quarantine("cents > 0")})
CHECKED = replace(STRICT, topic=parcels("STRING").topic)
FIXED = parcels("STRING")
LINES: list[list[tuple[str | None, int]]] = [
    [("a", 1), ("b", 2)],
    [("c", 3), ("d", -4), (None, 5)],
    [("e", 6), ("f", -7)],
    [],
]
PARCELS = [
    message("parcels", {"id": id, "at": 0, "lines": [{"sku": sku, "cents": cents} for sku, cents in lines]}, key=None)
    for id, lines in enumerate(LINES)
]


@pytest.mark.long
def test_rows_leave_quarantine_one_by_one_or_with_their_message(lake: Lake, tmp_path: Path) -> None:
    """A crash on the way makes no difference."""
    own = Lake(lake.spark, own_home(lake.settings, tmp_path))
    land_literally(own, numbered(PARCELS), [STRICT.topic])
    catch_up(own.settings, enriching(own, [STRICT]))
    held = read(own.settings, MALFORMED.name)
    assert sorted((row["position"]["entry_id"], row["row"], row["reason"]) for row in held) == [
        (2, -1, "lines[2].sku is missing"),
        (3, 1, "fails is_priced"),
    ]
    assert str(reconcile_facts(own, STRICT)) == (
        "parcels: 5 rows of 4 messages (1 without rows) landed = 3 enriched + 0 waiting + 0 duplicates + 0 discarded + "
        "2 malformed"
    )
    assert reconcile_facts(own, FIXED).holds
    with crash_after(Write("append_missing", ACTIONS.name)), pytest.raises(RuntimeError):
        steps.retry_facts(own, CHECKED, dry_run=False)
    assert steps.retry_facts(own, CHECKED, dry_run=False).sound == 1
    held = read(own.settings, MALFORMED.name)
    assert sorted((row["position"]["entry_id"], row["row"]) for row in held) == [(2, 1), (3, 1)]
    assert reconcile_facts(own, CHECKED).holds
    assert steps.retry_facts(own, FIXED, dry_run=False).sound == 2
    placed = [(row["id"], row["line"], row["sku"]) for row in read(own.settings, FIXED.gold_table)]
    assert sorted(placed, key=str) == [
        *((0, 0, "a"), (0, 1, "b"), (1, 0, "c"), (1, 1, "d"), (1, 2, None), (2, 0, "e"), (2, 1, "f"))
    ]
    assert reconcile_facts(own, FIXED).holds
    asked = read(own.settings, ACTIONS.name)
    assert sorted((row["position"]["entry_id"], row["row"]) for row in asked) == [(2, -1), (2, 1), (3, 1)]
    stricter = parcels("STRING NOT NULL")
    assert reconcile_facts(own, stricter).holds
    assert backfill(own, stricter, Scope()).removed == 3
    [whole] = read(own.settings, MALFORMED.name)
    assert (whole["position"]["entry_id"], whole["row"]) == (2, -1)
    left = [(row["id"], row["line"]) for row in read(own.settings, FIXED.gold_table)]
    assert sorted(left) == [(0, 0), (0, 1), (2, 0), (2, 1)]
    assert reconcile_facts(own, stricter).holds


def test_rows_of_an_entity_are_accounted_for_between_a_change_and_a_retry(lake: Lake, tmp_path: Path) -> None:
    """The second message breaks the contract as a whole. Once it is stricter again, the rows stay."""
    own = Lake(lake.spark, own_home(lake.settings, tmp_path))
    strict, relaxed = (
        Entity(
            topic=Topic("stores", f"stores ARRAY<STRUCT<id: BIGINT, city: {city}>>", rows="stores"),
            key="id",
            columns={"id": "row.id", "city": "row.city"},
        )
        for city in ("STRING NOT NULL", "STRING")
    )
    sent: list[dict[int, str | None]] = [{1: "Bonn", 2: "Kiel"}, {1: None, 3: "Jena"}]
    payloads = [{"stores": [{"id": id, "city": city} for id, city in each.items()]} for each in sent]
    landed = [message("stores", each, key=None, when=place, place=place) for place, each in enumerate(payloads)]
    land_literally(own, landed, [strict.topic])
    catch_up(own.settings, merging(own, [strict]))
    told = "stores: 3 rows of 2 messages landed = 2 current + 0 superseded + "
    assert str(reconcile_entity(own, strict)) == f"{told}1 malformed"
    assert str(reconcile_entity(own, relaxed)) == f"{told}0 malformed + 1 to be retried"
    assert steps.retry_changes(own, relaxed, dry_run=False).sound == 1
    assert read(own.settings, MALFORMED.name) == []
    assert reconcile_entity(own, relaxed).holds
    merge_batch(own, strict, own.table("bronze.stores").read())
    assert read(own.settings, MALFORMED.name) == []
    assert reconcile_entity(own, strict).holds


def test_what_is_of_another_kind_moves_there(
    lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Payloads could not be read, as if they were encrypted, and so counted as customers."""
    own = Lake(lake.spark, own_home(lake.settings, tmp_path))
    fields = "id BIGINT NOT NULL, kind STRING, at TIMESTAMP_MILLIS NOT NULL"
    conditions = tuple((name, f"kind = '{name}'") for name in ("customers", "orders", "refunds"))
    declared = [
        Enrichment(
            topic=Topic(name, fields, topic="shop", where=where, kinds=conditions),
            columns="id, at",
            keys=("id",),
            event_time="at",
            day="day",
            lookups=(),
        )
        for name, where in conditions
    ]
    landed = [message("shop", b"encrypted", key=None, place=place) for place in range(4)]
    land_literally(own, landed, [declared[0].topic.landing])
    catch_up(own.settings, enriching(own, declared))
    assert [row["topic"] for row in read(own.settings, MALFORMED.name)] == ["customers"] * 4
    readable = ({"id": 7, "kind": "refunds", "at": 0}, {"id": 8, "kind": "orders"}, {"id": 9, "kind": "news"})
    with own.table("bronze.shop").changeable():
        for place, each in enumerate(readable):
            payload = F.lit(json.dumps(each).encode())
            own.table("bronze.shop").delta.update(F.col("entry_id") == place, {"payload": payload})

    def retried(*arguments: str) -> list[str]:
        pipeline = Pipeline(entities=(), enrichments=tuple(declared), sql_tables=())
        return retry_command(pipeline, own.settings, monkeypatch, capsys, *arguments).splitlines()

    does, left = "malformed messages satisfy the contract now", "and left quarantine"
    assert retried("--dry-run") == [
        f"customers: 0 of 4 {does}; nothing was done",
        f"orders: 0 of 1 {does}; nothing was done",
        f"refunds: 1 of 1 {does}; nothing was done",
        "shop: 1 malformed messages are of no kind",
    ]
    assert retried("--topic", "refunds") == [
        f"refunds: 1 of 1 {does} {left}",
        f"shop: 1 malformed messages are of no kind {left}",
    ]
    assert [row["id"] for row in read(own.settings, declared[2].gold_table)] == [7]
    assert retried() == [
        f"customers: 0 of 2 {does} {left}",
        f"orders: 0 of 1 {does} {left}",
        f"refunds: 0 of 0 {does} {left}",
    ]
    held = read(own.settings, MALFORMED.name)
    assert sorted((row["topic"], row["position"]["entry_id"]) for row in held) == [("customers", 3), ("orders", 1)]
    assert all(reconcile_facts(own, each).holds for each in declared)
    assert retried()[:2] == [f"customers: 0 of 1 {does} {left}", f"orders: 0 of 1 {does} {left}"]
