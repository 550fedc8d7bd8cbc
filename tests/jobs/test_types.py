"""Fields of all types, from a producer through the broker to silver and gold, in JSON and in Avro."""

import json
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from pulsar.schema import AvroSchema, BytesSchema, Schema

from pulsar_lakehouse.contracts.checks import quarantine
from pulsar_lakehouse.contracts.topics import Encoding, Topic
from pulsar_lakehouse.gold.enrichment.backfill import Difference, Scope, backfill
from pulsar_lakehouse.gold.enrichment.declaration import Enrichment, Lookup
from pulsar_lakehouse.gold.enrichment.reconciliation import reconcile_facts
from pulsar_lakehouse.jobs import steps
from pulsar_lakehouse.jobs.streams import catch_up
from pulsar_lakehouse.pulsar.endpoint import Endpoint, connect
from pulsar_lakehouse.settings import Settings
from pulsar_lakehouse.silver.entity import Entity
from pulsar_lakehouse.tables.lake import Lake
from tests.lake import own_topics, read

FIELDS = """
    id BIGINT NOT NULL, weight DECIMAL(6, 2) NOT NULL, sent TIMESTAMP_MILLIS NOT NULL, seen TIMESTAMP_MICROS,
    arrived TIMESTAMP, due DATE, state ENUM('NEW', 'SENT'), address STRUCT<zip: BIGINT NOT NULL, city: STRING>,
    lines ARRAY<STRUCT<sku: STRING NOT NULL, price: DECIMAL(6, 2)>>, limits MAP<STRING, DECIMAL(6, 2)>
"""
NAMES = "id, weight, sent, seen, arrived, due, state, address, lines, limits"
SENT, SEEN = datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 1, 1, 0, 0, 0, 123_456, tzinfo=UTC)
COLUMNS = {
    "id": 1,
    "weight": Decimal("1.10"),
    "sent": SENT,
    "seen": SEEN,
    "arrived": SENT,
    "due": date(2026, 1, 31),
    "state": "SENT",
    "address": {"zip": 10115, "city": None},
    "lines": [{"sku": "A1", "price": Decimal("9.90")}],
    "limits": [("a", Decimal("1.50"))],
    "zip": 10115,
    "first_sku": "A1",
    "limit_a": Decimal("1.50"),
}
WRITTEN: dict[str, Any] = COLUMNS | {"arrived": "2026-01-01T01:00:00+01:00", "limits": {"a": Decimal("1.50")}}
JSON = b"""{
    "id": 1, "weight": 1.10, "sent": 1767225600000, "seen": 1767225600123456, "arrived": "2026-01-01T01:00:00+01:00",
    "due": "2026-01-31", "state": "SENT", "address": {"zip": 10115}, "lines": [{"sku": "A1", "price": "9.90"}],
    "limits": {"a": 1.5}
}"""


def declared(encoding: Encoding) -> tuple[Entity, Enrichment]:
    columns = f"{NAMES}, address.zip AS zip, lines[0].sku AS first_sku, limits['a'] AS limit_a"
    parcels = Entity(topic=Topic("parcels", FIELDS, changelog=True, encoding=encoding), key="id", columns=columns)
    scans = Enrichment(
        topic=Topic("scans", FIELDS, encoding=encoding),
        columns=columns,
        keys=("id",),
        event_time="sent",
        day="sent_date",
        lookups=(Lookup(entity=parcels, on="id", name="parcel"),),
        checks={"weighs_something": quarantine("weight > 0")},
    )
    return parcels, scans


def send(settings: Settings, endpoint: Endpoint, topic: Topic, values: dict[str, Any], json_text: bytes) -> None:
    schema: Schema = BytesSchema()
    if topic.encoding is Encoding.AVRO:
        schema = AvroSchema(None, schema_definition=json.loads(topic.pulsar_schema()))
    client = connect(endpoint, settings)
    producer = client.create_producer(f"persistent://{settings.pulsar.namespace}/{topic.name}", schema=schema)
    producer.send(values if topic.encoding is Encoding.AVRO else json_text, partition_key="1")
    client.close()


@pytest.mark.parametrize("encoding", [Encoding.JSON, pytest.param(Encoding.AVRO, marks=pytest.mark.long)])
def test_all_types_reach_gold(lake: Lake, endpoint: Endpoint, tmp_path: Path, encoding: Encoding) -> None:
    parcels, scans = declared(encoding)
    project = own_topics(lake.settings, endpoint, tmp_path, [parcels.topic, scans.topic])
    for topic in (parcels.topic, scans.topic):
        send(project, endpoint, topic, WRITTEN, JSON)
    late = JSON.replace(b"2026-01-01T01:00:00+01:00", b"today")
    send(project, endpoint, scans.topic, WRITTEN | {"arrived": "today"}, late)
    catch_up(project, steps.landing(Lake(lake.spark, project), [parcels.topic, scans.topic]))
    catch_up(project, steps.merging(Lake(lake.spark, project), [parcels]))
    catch_up(project, steps.enriching(Lake(lake.spark, project), [scans]))
    for table in ("silver.parcels", "silver.parcels_history", "gold.enriched_scans"):
        [row] = read(project, table)
        assert {name: row[name] for name in COLUMNS} == COLUMNS, table
    [scan] = read(project, "gold.enriched_scans")
    assert {name: scan["parcel"][name] for name in COLUMNS} == COLUMNS
    [malformed] = read(project, "quarantine.malformed")
    assert malformed["reason"] == "arrived is no timestamp: today"
    assert reconcile_facts(Lake(lake.spark, project), scans).holds
    same = Difference(unchanged=1, changed=0, added=0, removed=0, waiting=0)
    assert backfill(Lake(lake.spark, project), steps.as_written(Lake(lake.spark, project), scans), Scope()) == same
