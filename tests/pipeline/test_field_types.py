"""The types of fields that nobody has declared."""

from typing import Any

import pytest

from pulsar_lakehouse.contracts.topics import Encoding
from pulsar_lakehouse.pipeline.field_types import Field, fields_of_payloads, fields_of_record


@pytest.mark.parametrize(
    ("avro", "ddl"),
    [
        ("boolean", "BOOLEAN"),
        ("int", "INT"),
        ("long", "BIGINT"),
        ("float", "DOUBLE"),
        (["null", "double"], "DOUBLE"),
        (["string", "null"], "STRING"),
        ({"type": "enum", "name": "E", "symbols": ["A"]}, "STRING"),
        ({"type": "long", "logicalType": "timestamp-millis"}, "TIMESTAMP_MILLIS"),
        ({"type": "int", "logicalType": "date"}, "DATE"),
        ({"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2}, "DECIMAL(10, 2)"),
        ({"type": "array", "items": ["null", "long"]}, "ARRAY<BIGINT>"),
        ({"type": "map", "values": "string"}, "MAP<STRING, STRING>"),
        ({"type": "record", "name": "R", "fields": [{"name": "x", "type": "int"}]}, "STRUCT<x: INT>"),
        ({"type": "record", "name": "R", "fields": [{"name": "x", "type": "bytes"}]}, "STRUCT<x: BINARY>"),
        (["null", "int", "string"], ""),
        ("bytes", "BINARY"),
        ("Another", ""),
    ],
)
def test_the_type_of_a_schema(avro: Any, ddl: str) -> None:
    [found] = fields_of_record({"fields": [{"name": "field", "type": avro}]}, Encoding.AVRO)
    assert (found.ddl, found.is_required) == (ddl, "null" not in avro)


def test_a_protobuf_schema_tells_only_the_fields_of_the_message_itself() -> None:
    symbol, record = {"type": "enum", "name": "E", "symbols": ["A"]}, {"type": "record", "name": "R", "fields": []}
    kinds = [{"type": "int"}, symbol, record]
    fields = [{"name": f"field{at}", "type": kind} for at, kind in enumerate(kinds)]
    found = fields_of_record({"type": "record", "name": "Store", "fields": fields}, Encoding.PROTOBUF)
    assert [(each.ddl, each.is_required) for each in found] == [("INT", False), ("STRING", False), ("", False)]


def test_a_type_is_named_once_and_used_again() -> None:
    place = {"type": "record", "name": "Place", "namespace": "geo", "fields": [{"name": "http.city", "type": "string"}]}
    fields = [{"name": "here", "type": place}, {"name": "there", "type": ["null", "geo.Place"]}]
    found = fields_of_record({"type": "record", "name": "Trip", "fields": fields}, Encoding.AVRO)
    assert [each.ddl for each in found] == ["STRUCT<`http.city`: STRING>"] * 2


def test_a_record_in_itself_has_no_type() -> None:
    tree = {"type": "record", "name": "Tree", "fields": [{"name": "parent", "type": ["null", "Tree"]}]}
    assert [each.ddl for each in fields_of_record(tree, Encoding.AVRO)] == [""]


@pytest.mark.parametrize(
    ("values", "ddl"),
    [
        ([True, None], "BOOLEAN"),
        ([1, -(2**63)], "BIGINT"),
        ([1, 2**63], "DECIMAL(38, 0)"),
        ([1, 0.5], "DOUBLE"),
        (["x"], "STRING"),
        ([1767225600000, None], "TIMESTAMP_MILLIS"),
        ([1767225600000, 7], "BIGINT"),
        ([{"x": 1}, {"y": "z"}], "STRUCT<x: BIGINT, y: STRING>"),
        ([[1], [], [0.5]], "ARRAY<DOUBLE>"),
        ([[]], ""),
        ([{}], ""),
        ([None], ""),
        ([1, "x"], ""),
        ([True, 1], ""),
    ],
)
def test_the_type_of_values(values: list[Any], ddl: str) -> None:
    [found] = fields_of_payloads({"field": value} for value in values)
    assert found.ddl == ddl


@pytest.mark.parametrize(
    ("name", "ddl", "is_declarable"),
    [("id", "BIGINT", True), ("the id", "BIGINT", True), ("id", "", False), ("id", "BYTES", False)]
    + [(name, "BIGINT", False) for name in ("message", "it`s", 'say"', "new\nline", "back\\slash")],
)
def test_what_a_topic_can_have(name: str, ddl: str, is_declarable: bool) -> None:
    assert Field(name=name, ddl=ddl, seen="").is_declarable == is_declarable
