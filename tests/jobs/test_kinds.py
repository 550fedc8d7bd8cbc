"""Kinds of messages in one topic of a broker: they land once, with one subscription, and each goes its way.

An erasure of a store takes the sale with it that has a row of the store, and so its other row.
"""

from pathlib import Path

import pytest

from pulsar_lakehouse import Enrichment, Entity, Lookup, Topic
from pulsar_lakehouse.bronze.kinds import reconcile_kinds
from pulsar_lakehouse.gold.enrichment.reconciliation import reconcile_facts
from pulsar_lakehouse.jobs import steps
from pulsar_lakehouse.jobs.forget import forget
from pulsar_lakehouse.jobs.steps import steps_of_facts, steps_of_state
from pulsar_lakehouse.jobs.streams import catch_up
from pulsar_lakehouse.jobs.trace import Event, trace_entity, trace_facts
from pulsar_lakehouse.jobs.whereabouts import message_id, whereabouts
from pulsar_lakehouse.pipeline.declared import Pipeline
from pulsar_lakehouse.pulsar.endpoint import Endpoint, admin_path, call_admin
from pulsar_lakehouse.pulsar.produce import Message, produce
from pulsar_lakehouse.pulsar.registered_schemas import newest_schema
from pulsar_lakehouse.tables.lake import Lake
from tests.lake import own_topics

STORES = Entity(
    topic=Topic(
        "stores",
        "id BIGINT NOT NULL, city STRING",
        topic="Shop-v1",
        where="message.properties['of'] = 'store'",
    ),
    key="id",
    columns="id, city",
)
SALES = Enrichment(
    topic=Topic(
        "sales",
        "id BIGINT NOT NULL, at TIMESTAMP NOT NULL, items ARRAY<STRUCT<store: BIGINT, cents: BIGINT>>",
        topic="Shop-v1",
        where="message.properties['of'] = 'sale'",
        rows="items",
    ),
    columns="id, message.position.row AS place, row.store AS store_id, row.cents AS cents, at",
    keys=("id", "place"),
    event_time="at",
    day="sale_date",
    lookups=(Lookup(entity=STORES, on="store_id", name="store"),),
)
PIPELINE = Pipeline(entities=(STORES,), enrichments=(SALES,), sql_tables=())
SOLD = b'{"id": 7, "at": "2026-01-05T14:00Z", "items": [{"store": 1, "cents": 5}, {"store": 2, "cents": 6}]}'
SENT = [
    Message("1", b'{"id": 1, "city": "Bonn"}', 0, {"of": "store"}),
    Message("", SOLD, 0, {"of": "sale"}),
    Message("", b'{"id": 8, "at": "2026-01-05T14:00Z", "items": []}', 0, {"of": "sale"}),
    Message("1", None, 0, {"of": "news"}),
]


@pytest.mark.spark
def test_kinds_of_a_topic_land_once_and_each_goes_its_way(
    lake: Lake, endpoint: Endpoint, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also in the rounds of `run --every`, where changelogs and facts have steps of their own."""
    monkeypatch.setattr(steps, "pipeline_of", lambda _: PIPELINE)
    project = own_topics(lake.settings, endpoint, tmp_path, PIPELINE.topics)
    produce([(STORES.topic, SENT)], endpoint, project)
    own, name = Lake(lake.spark, project), SALES.topic.full_name(project.pulsar.namespace)
    round_ = [*steps_of_state(own), *steps_of_facts(own)]
    assert [each.name for step in round_ for each in step] == ["land shop_v1", "merge stores", "enrich sales"]
    for step in round_:
        catch_up(project, step)
    assert newest_schema(name, endpoint, project) is None
    found = call_admin("GET", f"{admin_path(name)}/subscriptions", endpoint, project).json()
    assert found == ["lakehouse-bronze.shop_v1"]
    [topic] = PIPELINE.topics
    counted = reconcile_kinds(own, topic, [STORES.decoding, SALES.decoding])
    assert str(counted) == "shop_v1: 4 landed = 1 stores + 2 sales + 1 other"
    assert {(each.table, *_row_and_what(each)) for each in trace_facts(project, SALES, ["7"])} == {
        ("bronze.shop_v1", "", "landed"),
        ("gold.enriched_sales", "0", "enriched: store 1"),
        ("quarantine.waiting_sales", "1", "waits for stores 2: store missing"),
    }
    [row] = own.table("bronze.shop_v1").read().where("decode(payload, 'utf-8') LIKE '%\"id\": 8%'").collect()
    empty = message_id(f"{row.partition}/{row.ledger_id}/{row.entry_id}/{row.batch_index}")
    where = whereabouts(project, SALES.topic, empty, SALES)
    assert (where.told, where.is_final) == ("in bronze.shop_v1: it has no rows for gold.enriched_sales", True)
    assert {event.table for event in trace_entity(project, STORES, ["1"])} == {
        *("bronze.shop_v1", "silver.stores", "silver.stores_history")
    }
    forget(own, PIPELINE, STORES, "1", now=False)
    left = {name: own.table(name).read().count() for name in (*PIPELINE.written, SALES.waiting.name)}
    assert left == {"bronze.shop_v1": 2, "silver.stores": 0, SALES.gold_table: 0, SALES.waiting.name: 0}
    assert reconcile_facts(own, SALES).holds


def _row_and_what(event: Event) -> tuple[str, str]:
    _, _, row = event.message.partition(" row ")
    return row, event.what.partition(" as of ")[0].partition(", published ")[0]
