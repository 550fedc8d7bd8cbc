"""What the registered schema of a topic says of its messages, and how that differs from what is declared."""

import json
from typing import Any

from pulsar_lakehouse.contracts.avro_schemas import Written
from pulsar_lakehouse.contracts.envelopes import METADATA, PARTS, ROWS
from pulsar_lakehouse.contracts.schemas import RegisteredSchema
from pulsar_lakehouse.contracts.topics import Encoding, Topic

KEY, VALUE = "key", "value"
"""The parts of a KeyValue schema."""
PRIMITIVES = {
    "BOOLEAN": "BOOLEAN",
    "INT8": "INT",
    "INT16": "INT",
    "INT32": "INT",
    "INT64": "BIGINT",
    "FLOAT": "DOUBLE",
    "DOUBLE": "DOUBLE",
    "STRING": "STRING",
    "DATE": "TIMESTAMP",
    "TIMESTAMP": "TIMESTAMP",
    "INSTANT": "TIMESTAMP",
    "LOCAL_DATE": "DATE",
    "LOCAL_DATE_TIME": "TIMESTAMP",
    "TIME": "BIGINT",
    "LOCAL_TIME": "BIGINT",
}
"""By Pulsar's type of a schema, the type of the one value that a message is."""
RECORDS = (Encoding.JSON, Encoding.AVRO, Encoding.PROTOBUF)
"""The encodings whose schema is an Avro record."""


def part_of(schema: RegisteredSchema, part: str) -> RegisteredSchema:
    """The schema of the `key` or the `value` of a KeyValue schema. Another schema is that of the value."""
    if schema.type != "KEY_VALUE":
        return schema if part == VALUE else RegisteredSchema(version=schema.version, type="NONE", data="")
    text = parsed(schema.data).get(part) or ""
    return RegisteredSchema(
        version=schema.version,
        type=schema.properties.get(f"{part}.schema.type", "NONE"),
        data=text if isinstance(text, str) else json.dumps(text),
        properties=parsed(schema.properties.get(f"{part}.schema.properties", "")),
        registered_at=schema.registered_at,
        topic=schema.topic,
    )


def record_of(schema: RegisteredSchema, *, in_envelope: bool = False) -> dict[str, Any]:
    """The Avro record of a schema; empty if it has none. That of a KeyValue schema is the value's.

    It also has the fields of the key, if that is a record, which the value has not. `in_envelope`, the value's are
    those of its rows.
    """
    value, key = (_record(part_of(schema, part)) for part in (VALUE, KEY))
    value = row_of(value) if in_envelope else value
    if not value:
        return {}
    names = {field["name"] for field in value["fields"]}
    of_key = [field for field in key.get("fields", ()) if field["name"] not in names]
    return {**value, "fields": [*value["fields"], *of_key]}


def row_of(record: dict[str, Any]) -> dict[str, Any]:
    """The record of the rows in a record of Debezium's envelope, with the metadata; the same record if it is none."""
    kinds = {field["name"]: field["type"] for field in record.get("fields", ())}
    rows = [each for name in ROWS for each in _branches(kinds.get(name)) if isinstance(each, dict) and "fields" in each]
    if not rows or "op" not in kinds:
        return record
    metadata = {f"{METADATA}{name}": kind for name, kind in kinds.items() if name not in (*ROWS, *PARTS)}
    for part in PARTS:
        fields = (field for each in _branches(kinds.get(part)) if isinstance(each, dict) for field in each["fields"])
        metadata |= {f"{METADATA}{part}_{field['name']}": field["type"] for field in fields}
    columns = [*rows[0]["fields"], *({"name": name, "type": ["null", kind]} for name, kind in metadata.items())]
    return {"namespace": record.get("namespace", ""), **rows[0], "fields": columns}


def _branches(kind: Any) -> list[Any]:
    return kind if isinstance(kind, list) else [kind]


def differences(topic: Topic, schema: RegisteredSchema) -> list[str]:
    """Why messages with this schema can't be read as the topic declares: a line for each field that differs."""
    value, record = part_of(schema, VALUE), record_of(schema, in_envelope=topic.envelope is not None)
    if value.type in PRIMITIVES.keys() - {Encoding.STRING} and len(topic.fields) > 1:
        return [f"registered as {value.type}: declare one field, such as {VALUE} {PRIMITIVES[value.type]}"]
    if not record or value.type == Encoding.PROTOBUF:
        return []
    return Written(json.dumps(record)).differences(topic.fields, Encoding(value.type))


def _record(schema: RegisteredSchema) -> dict[str, Any]:
    found = parsed(schema.data) if schema.type in RECORDS else {}
    try:
        return found if found and Written(schema.data).names else {}
    except (KeyError, TypeError, AttributeError):  # no Avro, as in schemas of old clients
        return {}


def parsed(text: str) -> dict[str, Any]:
    """A JSON object; empty if the text is none, as in schemas of old clients."""
    try:
        found = json.loads(text)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}
