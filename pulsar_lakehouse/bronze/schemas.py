"""The registered schemas of topics, kept beside bronze because its messages can't be read without them."""

import hashlib
import json
from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pyarrow.compute as pc
from deltalake import DeltaTable

from pulsar_lakehouse.bronze.partitions import CREATED, GONE
from pulsar_lakehouse.bronze.pulsar.positions import topic_of
from pulsar_lakehouse.contracts.envelopes import METADATA
from pulsar_lakehouse.contracts.registered import differences, record_of
from pulsar_lakehouse.contracts.schemas import RegisteredSchema
from pulsar_lakehouse.contracts.topics import Encoding, Topic
from pulsar_lakehouse.progress import CONSOLE
from pulsar_lakehouse.pulsar.endpoint import Endpoint
from pulsar_lakehouse.pulsar.registered_schemas import all_schemas, newest_schema
from pulsar_lakehouse.settings import Settings
from pulsar_lakehouse.tables.declared import Table
from pulsar_lakehouse.tables.direct import append_values
from pulsar_lakehouse.tables.lake import Lake
from pulsar_lakehouse.tables.stored import dataset_of, is_stored, stored_properties, stored_table

SCHEMAS = Table(
    name="bronze.schemas",
    columns="""
        topic STRING, version BIGINT, type STRING, schema STRING, properties MAP<STRING, STRING>, hash STRING,
        registered_at TIMESTAMP
    """,
    partition_by=("topic",),
)
"""By full name of the topic. `hash` is the SHA-256 of the schema's text.

A version has several rows if the topic or its schema was made anew, after which versions begin again at 0.
"""
WRITER_SCHEMAS = Table(
    name="bronze.writer_schemas", columns="topic STRING, version BIGINT, schema STRING", partition_by=("topic",)
)
"""Those of Avro topics, by name, that releases before this one have kept. It gets no rows any more."""

_READ: dict[tuple[str, str], tuple[int, tuple[RegisteredSchema, ...]]] = {}
"""By path of a table and topic: a version of the table, and the schemas in it."""


def with_schemas(settings: Settings, topic: Topic) -> Topic:
    """The topic with the schemas that are kept of it."""
    schemas = kept_schemas(settings, topic)
    return replace(topic, schemas=schemas) if schemas else topic


def kept_schemas(settings: Settings, topic: Topic) -> tuple[RegisteredSchema, ...]:
    """The schemas that are kept of the topics in a topic's table, oldest first. Does not need Spark.

    If there is more than one, as the topic is several or had another name, each schema has the name of its own. Those
    of a release that did not keep the time at which they were registered have 0.
    """
    namespace, of_all = settings.pulsar.namespace, _kept(settings, SCHEMAS.name)
    of_first = _kept(settings, WRITER_SCHEMAS.name, topic.name)
    if not of_all and not of_first:
        return ()
    landed = set(map(topic_of, json.loads(stored_properties(settings, topic.bronze_table).get(CREATED, "{}"))))
    if not topic.is_several and landed <= {topic.full_name(namespace)}:
        return _of_one(settings, topic)
    kept = [each for each in of_all if each.topic in landed or topic.lands(each.topic, namespace)]
    kept += [replace(each, topic=name) for each in of_first for name in sorted(landed)]
    return _in_order(kept)


def _of_one(settings: Settings, topic: Topic) -> tuple[RegisteredSchema, ...]:
    """The schemas that are kept of one topic, without its name."""
    name = topic.full_name(settings.pulsar.namespace)
    return _in_order([*_kept(settings, WRITER_SCHEMAS.name, topic.name), *_kept(settings, SCHEMAS.name, name)])


def _in_order(schemas: Iterable[RegisteredSchema]) -> tuple[RegisteredSchema, ...]:
    return tuple(sorted(schemas, key=lambda each: (each.registered_at, each.version)))


def unreadable(settings: Settings, topic: Topic) -> list[str]:
    """Why messages with the newest of these can't be read as the topic is declared; none if they can.

    Topics that do not land any more do not count.
    """
    if topic.where:
        return []
    gone = json.loads(stored_properties(settings, topic.bronze_table).get(GONE, "[]"))
    newest = {each.topic: each for each in kept_schemas(settings, topic)}
    return [
        f"{of}: {line}" if topic.is_several else line
        for of, each in newest.items()
        if not of or (topic.lands(of, settings.pulsar.namespace) and of not in gone)
        for line in differences(topic, each)
    ]


def _kept(settings: Settings, table_name: str, topic: str = "") -> tuple[RegisteredSchema, ...]:
    """The schemas of a topic; without one, those of all, which then have its name."""
    if not is_stored(settings, table_name):
        return ()
    table, place = stored_table(settings, table_name), (settings.table_path(table_name), topic)
    if place not in _READ or _READ[place][0] != table.version():
        found = tuple(_schema(row, "" if topic else row["topic"]) for row in _rows(table, topic))
        _READ[place] = table.version(), found
    return _READ[place][1]


def _rows(table: DeltaTable, topic: str) -> list[dict[str, Any]]:
    is_of_topic = pc.field("topic") == topic if topic else None
    rows: list[dict[str, Any]] = dataset_of(table).to_table(filter=is_of_topic).to_pylist()
    return rows


def _schema(row: dict[str, Any], topic: str) -> RegisteredSchema:
    at = row.get("registered_at")
    return RegisteredSchema(
        version=row["version"],
        type=row.get("type", Encoding.AVRO),
        data=row["schema"],
        properties=dict(row.get("properties") or ()),
        registered_at=round(at.timestamp() * 1000) if at else 0,
        topic=topic,
    )


def keep_schemas(lake: Lake, topic: Topic, endpoint: Endpoint) -> None:
    """Keep the schemas of a topic that are not kept yet, and say how the newest of them differs from what is declared.

    It must be one topic. Landing does not depend on it: a failure is told in a line, and messages whose schema is
    unknown can be retried.
    """
    try:
        if new := _keep(lake, topic, endpoint):
            _tell(topic, new[-1])
    except Exception as error:  # of the broker, of a table, or of a schema that nobody has thought of
        CONSOLE.say(f"{topic.name}: its registered schemas could not be kept; the next landing tries again: {error}")


def _tell(topic: Topic, schema: RegisteredSchema) -> None:
    if topic.where:  # it can't be that of all kinds
        return
    for line in differences(topic, schema):
        CONSOLE.say(f"{topic.name}: {line}")
    registered = {
        field["name"] for field in record_of(schema, in_envelope=topic.envelope is not None).get("fields", ())
    }
    if ignored := {each for each in registered - set(topic.fields.names) if not each.startswith(METADATA)}:
        CONSOLE.say(f"{topic.name}: registered, but not declared: {', '.join(sorted(ignored))}")


def _keep(lake: Lake, topic: Topic, endpoint: Endpoint) -> list[RegisteredSchema]:
    name, known = topic.full_name(lake.settings.pulsar.namespace), _of_one(lake.settings, topic)
    newest = newest_schema(name, endpoint, lake.settings)
    if newest is None or newest in known:
        return []
    new = [each for each in all_schemas(name, endpoint, lake.settings) if each not in known]
    lake.create(SCHEMAS)
    append_schemas(lake.settings, topic, new)
    return new


def append_schemas(settings: Settings, topic: Topic, schemas: list[RegisteredSchema]) -> None:
    """Append schemas of a topic to the table, which exists. Does not need Spark."""
    rows = [
        {
            "topic": topic.full_name(settings.pulsar.namespace),
            "version": each.version,
            "type": each.type,
            "schema": each.data,
            "properties": list(each.properties.items()),
            "hash": hashlib.sha256(each.data.encode()).hexdigest(),
            "registered_at": datetime.fromtimestamp(each.registered_at / 1000, UTC),
        }
        for each in schemas
    ]
    append_values(settings, SCHEMAS.name, rows)
