"""Encrypted messages from landing to gold: they wait in quarantine for their private key, and a retry decrypts them."""

import re
from pathlib import Path

import pytest
import typer

from pulsar_lakehouse import Enrichment, Entity, Lookup, Topic
from pulsar_lakehouse.cli import quarantine as cli_quarantine
from pulsar_lakehouse.gold.enrichment.backfill import Difference, Scope, backfill
from pulsar_lakehouse.gold.enrichment.reconciliation import reconcile_facts
from pulsar_lakehouse.jobs.steps import enriching, landing, merging
from pulsar_lakehouse.jobs.streams import catch_up
from pulsar_lakehouse.jobs.trace import trace_facts
from pulsar_lakehouse.pipeline.declared import Pipeline
from pulsar_lakehouse.pulsar.endpoint import Endpoint
from pulsar_lakehouse.settings import Settings
from pulsar_lakehouse.silver.reconciliation import reconcile_entity
from pulsar_lakehouse.tables.lake import Lake
from tests.bronze.pulsar.test_encryption import Key, rsa_key  # noqa: F401
from tests.java_client import JavaClient, message
from tests.lake import own_topics, read

STORES = Entity(topic=Topic("stores", "id BIGINT NOT NULL, city STRING", changelog=True), key="id", columns="id, city")
SALES = Enrichment(
    topic=Topic("sales", "id BIGINT NOT NULL, store BIGINT, at TIMESTAMP NOT NULL"),
    columns="id, store AS store_id, at",
    keys=("id",),
    event_time="at",
    day="sale_date",
    lookups=(Lookup(entity=STORES, on="store_id", name="store"),),
)
PIPELINE = Pipeline(entities=(STORES,), enrichments=(SALES,), sql_tables=())
CITIES = [b'{"id": 1, "city": "Bonn"}', b'{"id": 2, "city": "Pau"}', b'{"id": 2, "city": "Porto"}', b"{id: 3}"]
SOLD = [b'{"id": 1, "store": 1, "at": "2026-01-05T14:00Z"}', b'{"id": 2, "store": 2, "at": "2026-01-06T14:00Z"}']


def run(lake: Lake) -> None:
    catch_up(lake.settings, landing(lake, PIPELINE.topics))
    catch_up(lake.settings, merging(lake, [STORES]))
    catch_up(lake.settings, enriching(lake, [SALES]))


def reasons(project: Settings) -> list[tuple[str, str]]:
    return sorted((row["topic"], row["reason"]) for row in read(project, "quarantine.malformed"))


def cities(project: Settings) -> dict[int, str]:
    return {row["id"]: row["city"] for row in read(project, "silver.stores")}


def sold(project: Settings) -> dict[int, str]:
    return {row["id"]: row["store"]["city"] for row in read(project, "gold.enriched_sales")}


@pytest.mark.long
def test_a_retry_decrypts_what_landed_without_its_private_key(
    lake: Lake,
    endpoint: Endpoint,
    java: JavaClient,
    rsa_key: Key,  # noqa: F811
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    project = own_topics(lake.settings, endpoint, tmp_path, PIPELINE.topics)
    stores, sales = (f"persistent://{project.pulsar.namespace}/{name}" for name in ("stores", "sales"))
    keys = {"K": str(rsa_key.public)}
    changes = [message(each, key=re.findall(r"\d", str(each))[0]) for each in CITIES]
    java.send(stores, changes, public_keys=keys, batched=True)
    java.send(sales, [message(each) for each in SOLD], public_keys=keys)
    own = Lake(lake.spark, project)
    run(own)
    assert (cities(project), sold(project)) == ({}, {})
    encrypted = "encrypted with key K"
    assert reasons(project) == [("sales", encrypted)] * 2 + [("stores", encrypted)] * 4

    def retry(*arguments: str) -> str:
        typer.main.get_command(cli_quarantine.app)(["retry", *arguments], standalone_mode=False)
        return capsys.readouterr().out

    monkeypatch.setenv("LAKEHOUSE_HOME", str(project.home))
    monkeypatch.setenv("LAKEHOUSE_PULSAR__DECRYPTION_KEYS", f'{{"K": "{rsa_key.private}"}}')
    monkeypatch.setattr(cli_quarantine, "pipeline_of", lambda _: PIPELINE)
    assert retry("--topic", "stores", "--dry-run") == (
        "stores: 3 of 4 malformed messages satisfy the contract now; nothing was done\n"
    )
    assert retry() == (
        "stores: 3 of 4 malformed messages satisfy the contract now and left quarantine\n"
        "sales: 2 of 2 malformed messages satisfy the contract now and left quarantine\n"
    )
    run(own)
    bonn_and_porto = {1: "Bonn", 2: "Porto"}
    assert (cities(project), sold(project)) == (bonn_and_porto, bonn_and_porto)
    assert reasons(project) == [("stores", "not a JSON object")]
    assert [row["payload"] for row in read(project, "quarantine.malformed")] == [b"{id: 3}"]

    assert sorted(row["payload"] for row in read(project, "bronze.stores")) == sorted(CITIES)
    assert own.table("bronze.stores").properties["delta.appendOnly"] == "true"
    balance = reconcile_entity(own, STORES)
    assert (balance.accounted, balance.holds) == ({"current": 2, "superseded": 1, "malformed": 1}, True)
    assert reconcile_facts(own, SALES).holds
    assert backfill(own, SALES, Scope()) == Difference(unchanged=2)
    assert [each.what for each in trace_facts(project, SALES, ["1"])].count("decrypted") == 1
