"""What registered schemas say of messages, and how they differ from what is declared."""

import json
from typing import Any

import pytest

from pulsar_lakehouse.contracts.registered import differences, record_of
from pulsar_lakehouse.contracts.schemas import RegisteredSchema
from pulsar_lakehouse.contracts.topics import Topic

TRIPS = Topic("trips", "id BIGINT NOT NULL, distance DOUBLE NOT NULL, riders INT, note STRING", record="Trip")
READABLE = {"id": "long", "distance": "double", "riders": "int", "note": "string"}


def record(fields: dict[str, Any]) -> dict[str, Any]:
    return {"type": "record", "name": "Trip", "fields": [{"name": name, "type": of} for name, of in fields.items()]}


def schema(type: str, data: Any = "", **properties: str) -> RegisteredSchema:
    text = data if isinstance(data, str) else json.dumps(data)
    return RegisteredSchema(version=0, type=type, data=text, properties=properties)


def key_value(key: Any, value: Any, *, of_key: str = "JSON", of_value: str = "JSON") -> RegisteredSchema:
    types = {"key.schema.type": of_key, "value.schema.type": of_value}
    return schema("KEY_VALUE", {"key": key, "value": value}, **types)


@pytest.mark.parametrize("type", ["JSON", "AVRO"])
def test_a_field_of_another_type_is_a_line(type: str) -> None:
    assert differences(TRIPS, schema(type, record(READABLE | {"id": "string"}))) == [
        "id is registered as string, but declared as long"
    ]


@pytest.mark.parametrize(
    "schema",
    [
        schema("JSON", record(READABLE | {"tip": "double"})),
        schema("AVRO", record(READABLE)),
        schema("JSON", {"type": "object", "properties": {}}),
        schema("JSON", "no JSON"),
        schema("STRING"),
        schema("BYTES"),
        schema("NONE"),
        schema("PROTOBUF", record({"id": "string"})),
        schema("PROTOBUF_NATIVE", {"rootMessageTypeName": "Trip"}),
        key_value(record({"id": "long"}), record({"distance": "double"})),
        key_value("", record(READABLE), of_key="STRING", of_value="AVRO"),
    ],
)
def test_schemas_that_can_be_read(schema: RegisteredSchema) -> None:
    assert differences(TRIPS, schema) == []


def test_the_value_of_a_pair_is_compared() -> None:
    assert differences(TRIPS, key_value(record({"id": "long"}), record({"riders": "string"}))) == [
        "distance is not registered, but declared as a required double",
        "riders is registered as string, but declared as int",
    ]


def test_one_value_is_one_field() -> None:
    assert differences(TRIPS, schema("INT64")) == ["registered as INT64: declare one field, such as value BIGINT"]
    assert differences(Topic("counts", "value BIGINT"), schema("INT64")) == []


def test_a_pair_has_the_fields_of_the_value_and_then_those_of_the_key() -> None:
    pair = key_value(record({"id": "long", "shop": "string"}), record({"id": "long", "distance": "double"}))
    assert [field["name"] for field in record_of(pair)["fields"]] == ["id", "distance", "shop"]


@pytest.mark.parametrize("fields", [{"id": "int"}, [{"name": "id"}], [{"type": "int"}], [5], "id"])
def test_a_schema_that_is_no_avro_has_no_fields(fields: object) -> None:
    broken = RegisteredSchema(
        version=0, type="JSON", data=json.dumps({"type": "record", "name": "R", "fields": fields})
    )
    assert (record_of(broken), differences(TRIPS, broken)) == ({}, [])
