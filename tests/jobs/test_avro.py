"""Avro messages of several schema versions, from the client's own producer to silver."""

from pathlib import Path
from typing import Any

from pulsar.schema import AvroSchema, BytesSchema, Schema

from pulsar_lakehouse.contracts.topics import Encoding, Topic
from pulsar_lakehouse.jobs import steps
from pulsar_lakehouse.jobs.streams import catch_up
from pulsar_lakehouse.pulsar.endpoint import Endpoint, connect
from pulsar_lakehouse.settings import Settings
from pulsar_lakehouse.silver.entity import Entity
from pulsar_lakehouse.silver.reconciliation import reconcile_entity
from pulsar_lakehouse.tables.lake import Lake
from tests.lake import own_topics, read

SHIPS = Entity(
    topic=Topic(
        "ships", "id BIGINT NOT NULL, name STRING, speed DOUBLE", record="Ship", changelog=True, encoding=Encoding.AVRO
    ),
    key="id",
    columns={"id": "id", "name": "name", "speed": "speed"},
)
ID = {"name": "id", "type": "long"}
SPEED = {"name": "speed", "type": ["null", "double"], "default": None}
FLAG = {"name": "flag", "type": ["null", "string"], "default": None}
OLD = {"type": "record", "name": "Ship", "fields": [ID, SPEED]}
NEW = {"type": "record", "name": "Ship", "fields": [FLAG, ID]}


class Broken(AvroSchema):  # type: ignore[misc]
    """Sends the given bytes instead of encoded records."""

    def encode(self, payload: bytes) -> bytes:
        return payload


def send(settings: Settings, endpoint: Endpoint, schema: Schema, *payloads: Any) -> None:
    client = connect(endpoint, settings)
    producer = client.create_producer(f"persistent://{settings.pulsar.namespace}/ships", schema=schema)
    for payload in payloads:
        producer.send(payload)
    client.close()


def run(lake: Lake) -> None:
    catch_up(lake.settings, steps.landing(lake, [SHIPS.topic]))
    catch_up(lake.settings, steps.merging(lake, [SHIPS]))


def ships(settings: Settings) -> dict[int, tuple[str | None, float | None]]:
    return {row["id"]: (row["name"], row["speed"]) for row in read(settings, "silver.ships")}


def test_schemas_evolve(lake: Lake, endpoint: Endpoint, tmp_path: Path) -> None:
    project = own_topics(lake.settings, endpoint, tmp_path, [SHIPS.topic])
    declared = AvroSchema(None, schema_definition={**OLD, "fields": [ID, {**FLAG, "name": "name"}, SPEED]})
    send(project, endpoint, AvroSchema(None, schema_definition=OLD), {"id": 1, "speed": 1.5}, {"id": 2, "speed": None})
    send(project, endpoint, declared, {"id": 3, "name": "Zoë", "speed": 2.0})
    run(Lake(lake.spark, project))
    assert ships(project) == {1: (None, 1.5), 2: (None, None), 3: ("Zoë", 2.0)}
    send(project, endpoint, AvroSchema(None, schema_definition=NEW), {"id": 1, "flag": "NO"}, {"id": 4, "flag": None})
    send(project, endpoint, Broken(None, schema_definition=NEW), b"", b"\xff" * 20)
    send(project, endpoint, BytesSchema(), b"\x02\x00")
    run(Lake(lake.spark, project))
    assert ships(project) == {1: (None, None), 2: (None, None), 3: ("Zoë", 2.0), 4: (None, None)}
    assert sorted(row["reason"] for row in read(project, "quarantine.malformed")) == [
        "no Avro record of schema version 2",
        "no schema version",
        "tombstone whose message key is not of type BIGINT: none",
    ]
    balance = reconcile_entity(Lake(lake.spark, project), steps.as_written(Lake(lake.spark, project), SHIPS))
    assert balance.accounted == {"current": 4, "superseded": 1, "malformed": 3}
    assert balance.holds
