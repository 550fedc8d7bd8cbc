"""Avro schemas of topics: how fields are registered, and what of a producer's schema can be read as declared."""

import json
from typing import Any

import pytest

from pulsar_lakehouse.contracts.avro_schemas import Written
from pulsar_lakehouse.contracts.ddl import parse_fields
from pulsar_lakehouse.contracts.topics import Encoding, Topic

TRIPS = parse_fields(
    """
    id BIGINT NOT NULL, distance DOUBLE NOT NULL, riders INT, note STRING, fare DECIMAL(8, 2), day DATE,
    begun TIMESTAMP_MILLIS, ended TIMESTAMP_MICROS, told TIMESTAMP, state ENUM('OPEN', 'DONE'),
    stops ARRAY<STRUCT<km: INT NOT NULL, at: TIMESTAMP_MILLIS>>, counts MAP<STRING, BIGINT>
    """
)
MONEY = {"type": "bytes", "logicalType": "decimal", "precision": 8, "scale": 2}
MILLIS = {"type": "long", "logicalType": "timestamp-millis"}
MICROS = {"type": "long", "logicalType": "timestamp-micros"}
DAY = {"type": "int", "logicalType": "date"}
STATE = {"type": "enum", "name": "TripState", "symbols": ["OPEN", "DONE"]}


def record(fields: dict[str, Any], name: str = "Trip") -> dict[str, Any]:
    columns = [{"name": each, "type": kind} for each, kind in fields.items() if kind is not None]
    return {"type": "record", "name": name, "fields": columns}


def optional(kind: Any) -> list[Any]:
    return ["null", kind]


def stops(**changed: Any) -> dict[str, Any]:
    return {"type": "array", "items": record({"km": "int", "at": MILLIS} | changed, "Stop")}


READABLE = {
    **{"id": "long", "distance": "double", "riders": "int", "note": "string", "fare": MONEY, "day": DAY},
    **{"begun": MILLIS, "ended": MICROS, "told": "string", "state": STATE, "stops": stops()},
    "counts": {"type": "map", "values": "long"},
}


def differences(changed: dict[str, Any], encoding: Encoding) -> list[str]:
    return Written(json.dumps(record(READABLE | changed))).differences(TRIPS, encoding)


@pytest.mark.parametrize(
    "changed",
    [
        {},
        {"id": "int", "distance": "float", "note": {"type": "enum", "name": "Note", "symbols": ["A"]}},
        {"id": MICROS, "distance": "long"},
        {"id": optional("long"), "riders": ["int", "null"], "distance": ["int", "double"]},
        {"more": record({"x": "int"}, "More"), "note": None, "riders": None, "stops": None},
        {"day": "int"},
        {"begun": "long", "ended": "long", "state": "string", "fare": "string"},
        {"fare": {"type": "fixed", "name": "Money", "size": 5, "logicalType": "decimal", "precision": 4, "scale": 4}},
        {"stops": stops(km=optional("int"), at=None, more="string")},
        {"stops": optional({"type": "array", "items": optional(record({"km": "int"}, "Stop"))})},
        {"note": STATE, "state": "TripState"},
    ],
)
def test_what_can_be_read_as_declared(changed: dict[str, Any]) -> None:
    assert differences(changed, Encoding.AVRO) == []


@pytest.mark.parametrize(
    ("changed", "found"),
    [
        ({"id": None}, ["id is not registered, but declared as a required long"]),
        ({"riders": "long"}, ["riders is registered as long, but declared as int"]),
        ({"id": "double"}, ["id is registered as double, but declared as long"]),
        (
            {"note": ["null", "string", "long"]},
            ["note is registered as string or long, but declared as string"],
        ),
        ({"note": record({}, "Note")}, ["note is registered as record, but declared as string"]),
        (
            {"id": "string", "distance": None},
            [
                "id is registered as string, but declared as long",
                "distance is not registered, but declared as a required double",
            ],
        ),
        (
            {"begun": MICROS},
            ["begun is registered as long (timestamp-micros), but declared as long (timestamp-millis)"],
        ),
        ({"told": MILLIS}, ["told is registered as long (timestamp-millis), but declared as string"]),
        ({"fare": "bytes"}, ["fare is registered as bytes, but declared as bytes (decimal)"]),
        ({"state": ["string", STATE]}, ["state is registered as string or enum, but declared as enum"]),
        ({"stops": "string"}, ["stops is registered as string, but declared as array"]),
        ({"stops": stops(km="string")}, ["stops[].km is registered as string, but declared as int"]),
        ({"stops": stops(km=None)}, ["stops[].km is not registered, but declared as a required int"]),
        ({"counts": {"type": "map", "values": "float"}}, ["counts[] is registered as float, but declared as long"]),
    ],
)
def test_what_can_not(changed: dict[str, Any], found: list[str]) -> None:
    assert differences(changed, Encoding.AVRO) == found


def test_json_has_numbers_and_texts_where_avro_has_types_for_them() -> None:
    assert differences({"fare": "double", "day": "string", "state": ["string", STATE]}, Encoding.JSON) == []
    assert differences({}, Encoding.JSON) == []
    assert differences({"day": "long"}, Encoding.JSON) == ["day is registered as long, but declared as string"]


def test_names_are_found_in_their_namespace() -> None:
    inner = record({"km": "int"}, "Stop") | {"namespace": "there"}
    schema = record({"id": "long", "distance": "double", "first": inner}) | {"namespace": "here"}
    schema["fields"] += [{"name": "stops", "type": {"type": "array", "items": "there.Stop"}}]
    assert Written(json.dumps(schema)).differences(TRIPS, Encoding.AVRO) == []


def test_a_schema_that_is_no_record_has_no_names() -> None:
    assert Written('{"type": "string"}').names == []


def registered(ddl: str, encoding: Encoding) -> dict[str, Any]:
    schema = json.loads(Topic("trips", ddl, record="Trip", encoding=encoding).pulsar_schema())
    return {field["name"]: field["type"] for field in schema["fields"]}


def test_fields_are_registered_as_the_types_they_are_written_with() -> None:
    ddl = "fare DECIMAL(8, 2) NOT NULL, day DATE NOT NULL, begun TIMESTAMP_MILLIS NOT NULL, told TIMESTAMP"
    both = {"begun": MILLIS, "told": ["null", "string"]}
    assert registered(ddl, Encoding.JSON) == {"fare": "string", "day": "string", **both}
    assert registered(ddl, Encoding.AVRO) == {"fare": MONEY, "day": DAY, **both}


@pytest.mark.parametrize("encoding", list(Encoding))
def test_nested_fields_are_registered(encoding: Encoding) -> None:
    ddl = """
        state ENUM('OPEN', 'DONE') NOT NULL, way ENUM('on foot'),
        stops ARRAY<STRUCT<km: INT NOT NULL>> NOT NULL, counts MAP<STRING, BIGINT> NOT NULL
    """
    assert registered(ddl, encoding) == {
        "state": STATE,
        "way": ["null", "string"],
        "stops": {"type": "array", "items": ["null", record({"km": "int"}, "TripStops")]},
        "counts": {"type": "map", "values": ["null", "long"]},
    }
