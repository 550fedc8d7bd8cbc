"""A message and its contract in, a row or a reason out, for each encoding of payloads and keys."""

import base64
import io
import json
import struct
from collections.abc import Mapping
from datetime import date
from decimal import Decimal
from typing import Any

import fastavro
import pytest
from google.protobuf import descriptor_pb2
from hypothesis import given
from hypothesis import strategies as st

from pulsar_lakehouse.contracts.decoder import Decoder, Message
from pulsar_lakehouse.contracts.schemas import RegisteredSchema
from pulsar_lakehouse.contracts.topics import Topic
from pulsar_lakehouse.contracts.types import Encoding, KeyEncoding

NOON = 1_769_860_800_000_000
"""2026-01-31T12:00:00Z in microseconds."""


def schema(type: str, data: Any = "", *, version: int = 0, at: int = 0, **properties: str) -> RegisteredSchema:
    text = data if isinstance(data, str) else json.dumps(data)
    return RegisteredSchema(version=version, type=type, data=text, properties=properties, registered_at=at)


def record(*fields: dict[str, Any], name: str = "Ship", **more: Any) -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": list(fields), **more}


def in_avro(written: Mapping[str, Any], values: Mapping[str, Any]) -> bytes:
    payload = io.BytesIO()
    fastavro.schemaless_writer(payload, dict(written), dict(values))
    return payload.getvalue()


def decoded(topic: Topic, payload: bytes | None, *, key: str | None = None, version: int | None = 0) -> Any:
    """The fields that are not NULL, or the reason."""
    found = Decoder(topic, [["id"]]).decode(Message(key, payload, version, 1_000_000))
    return found.reason or {name: value for name, value in (found.fields or {}).items() if value is not None}


def of_json(ddl: str, value: str) -> Any:
    return decoded(Topic("ships", f"v {ddl}"), f'{{"v": {value}}}'.encode(), version=None)


@pytest.mark.parametrize(
    ("written", "micros"),
    [
        ('"2026-01-31T12:00:00Z"', NOON),
        ('"2026-01-31T12:00Z"', NOON),  # Java leaves out seconds that are 0
        ('"2026-01-31T13:00:00+01"', NOON),  # PostgreSQL
        ('"2026-01-31 12:00:00.5+00"', NOON + 500_000),
        ('"2026-01-31T12:00:00.000+0000"', NOON),  # Kafka Connect, old Jackson
        ('"2026-01-31T12:00:00.1234567Z"', NOON + 123_456),  # C#
        ('"2026-01-31T12:00:00.123456789Z"', NOON + 123_456),  # Go, and Java's Instant
        ('"2026-01-31T13:00:00+01:00[Europe/Berlin]"', NOON),  # Java's ZonedDateTime
        ('"2026-01-31t12:00:00z"', NOON),
    ],
)
def test_times_as_real_writers_have_them(written: str, micros: int) -> None:
    assert of_json("TIMESTAMP", written) == {"v": micros}


@pytest.mark.parametrize(
    ("ddl", "written", "value"),
    [
        ("DECIMAL(6, 2)", "6E+2", Decimal(600)),
        ("DECIMAL(6, 2)", '"1e1"', Decimal(10)),
        ("DECIMAL(9, 2)", "123456.000", Decimal("123456.00")),
        ("DECIMAL(9, 2)", '{"scale": 1, "value": "AP8="}', Decimal("25.50")),  # Debezium, of a numeric without a scale
        ("DATE", "20484", date(2026, 1, 31).toordinal() - date(1970, 1, 1).toordinal()),
        ("DATE", "[2026, 1, 31]", 20484),
        ("STRING", "12345678901234567890.10", "12345678901234567890.10"),
        ("BINARY", '"AP8="', b"\x00\xff"),
        ("BINARY", '"_-8="', b"\xff\xef"),
        ("STRING", '{"a": [1.0, true, null]}', '{"a":[1.0,true,null]}'),
        ("STRUCT<`http.method`: STRING, `@type`: STRING, `$oid`: BIGINT>", '{"http.method": "GET", "$oid": 1}',
         {"http.method": "GET", "$oid": 1}),
    ],
)  # fmt: skip
def test_values_as_real_writers_have_them(ddl: str, written: str, value: Any) -> None:
    assert of_json(ddl, written) == {"v": value}


def test_reasons_show_numbers_as_they_were_sent() -> None:
    assert of_json("DECIMAL(6, 2)", "1e5") == "v is no decimal(6,2): 1e5"
    assert of_json("BIGINT", "6.00E+2") == "v is no bigint: 6.00E+2"


SHIPS = "id BIGINT NOT NULL, label STRING, speed DOUBLE, state ENUM('NEW', 'OTHER'), port STRUCT<name: STRING>"
OLD = record(
    {"name": "id", "type": "int"},
    {"name": "name", "type": "string"},
    {"name": "speed", "type": "float"},
    {"name": "state", "type": {"type": "enum", "name": "State", "symbols": ["NEW", "LOST"]}},
    {"name": "port", "type": {"type": "record", "name": "Port", "fields": [{"name": "city", "type": "string"}]}},
    namespace="org.acme.Fleet$",
)
NEW = record(
    {"name": "id", "type": "long"},
    {"name": "label", "type": "string", "aliases": ["title", "name"]},
    {"name": "speed", "type": "double"},
    {"name": "state", "type": {"type": "enum", "name": "State", "symbols": ["NEW", "OTHER"], "default": "OTHER"}},
    {"name": "port", "type": {"type": "record", "name": "Port", "fields": [
        {"name": "name", "type": ["null", "string"], "aliases": ["city"], "default": None}]}},
    {"name": "length", "type": ["double", "null"], "default": 1.5},
    namespace="org.acme.Fleet$",
)  # fmt: skip


def test_old_avro_records_are_resolved_with_the_newest_schema() -> None:
    """By aliases, promotions, the default of an enum, and the default of a field that was added."""
    schemas = schema("AVRO", OLD), schema("AVRO", NEW, version=1, at=5)
    topic = Topic("ships", f"{SHIPS}, length DOUBLE NOT NULL", encoding=Encoding.AVRO, schemas=schemas)
    values = {"id": 1, "name": "Ada", "speed": 0.5, "state": "LOST", "port": {"city": "Kiel"}}
    assert decoded(topic, in_avro(OLD, values)) == {
        **{"id": 1, "label": "Ada", "speed": 0.5, "state": "OTHER", "port": {"name": "Kiel"}, "length": 1.5}
    }


def test_a_record_takes_nothing_of_the_newest_schema_of_another_kind() -> None:
    own = record({"name": "id", "type": "long"}, name="Ship")
    other = record({"name": "id", "type": "long"}, {"name": "speed", "type": "long", "default": 9}, name="Car")
    schemas = schema("AVRO", own), schema("AVRO", other, version=1, at=5)
    for where, found in (("", {"id": 1, "speed": 9}), ("speed IS NULL", {"id": 1})):
        topic = Topic("ships", "id BIGINT, speed BIGINT", where=where, encoding=Encoding.AVRO, schemas=schemas)
        assert decoded(topic, in_avro(own, {"id": 1})) == found


@pytest.mark.parametrize(
    ("kind", "value", "ddl", "found"),
    [
        ("int", 7, "STRING", "7"),
        (["null", "string", "long"], 7, "STRING", "7"),
        (["null", "int"], None, "BIGINT", None),
        ("bytes", b"a", "STRING", "a"),
        ("bytes", b"\xff", "BINARY", b"\xff"),
        ({"type": "long", "logicalType": "timestamp-micros"}, 1_500, "TIMESTAMP", 1_500),
        ({"type": "long", "logicalType": "timestamp-millis"}, 2, "TIMESTAMP_MICROS", 2_000),
        ({"type": "long", "logicalType": "local-timestamp-millis"}, 2, "TIMESTAMP", 2_000),
        ({"type": "long", "logicalType": "timestamp-millis"}, 2, "BIGINT", 2),
        ({"type": "int", "logicalType": "date"}, 2, "DATE", 2),
        ({"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 1}, Decimal("1.5"), "DECIMAL(9, 2)",
         Decimal("1.50")),
        ({"type": "string", "logicalType": "uuid"}, "e2a3b9ee-0e8f-4c56-a1c0-29a3e0a6d0a1", "STRING",
         "e2a3b9ee-0e8f-4c56-a1c0-29a3e0a6d0a1"),
        ({"type": "map", "values": "int"}, {"a": 1}, "MAP<STRING, BIGINT>", [("a", 1)]),
    ],
)  # fmt: skip
def test_avro_types(kind: Any, value: Any, ddl: str, found: Any) -> None:
    written = record({"name": "v", "type": kind})
    topic = Topic("ships", f"id BIGINT, v {ddl}", encoding=Encoding.AVRO, schemas=(schema("AVRO", written),))
    assert decoded(topic, in_avro(written, {"v": value})) == ({} if found is None else {"v": found})


def test_a_message_is_read_by_the_type_of_its_own_schema() -> None:
    """JSON first, Avro later; text that is JSON."""
    avro = record({"name": "id", "type": "long"})
    schemas = schema("JSON", avro), schema("AVRO", avro, version=1), schema("STRING", version=2)
    topic = Topic("ships", "id BIGINT", schemas=schemas)
    assert [
        decoded(topic, b'{"id": 1}', version=0),
        decoded(topic, in_avro(avro, {"id": 2}), version=1),
        decoded(topic, b'{"id": 3}', version=2),
        decoded(topic, b'{"id": 4}', version=None),
        decoded(topic, b'{"id": 5}', version=9),
    ] == [{"id": 1}, {"id": 2}, {"id": 3}, {"id": 4}, {"id": 5}]


def test_a_schema_that_was_made_anew_is_told_apart_by_its_time() -> None:
    one, other = (record({"name": a, "type": "int"}, {"name": b, "type": "int"}) for a, b in ("ab", "ba"))
    ddl, later = "a INT, b INT", 500_000
    both = Topic(
        "ships", ddl, encoding=Encoding.AVRO, schemas=(schema("AVRO", other, at=later), schema("AVRO", one, at=1))
    )
    only = Topic("ships", ddl, encoding=Encoding.AVRO, schemas=(schema("AVRO", other, at=later),))
    payload = in_avro(one, {"a": 10, "b": 20})

    def at(topic: Topic, published: int) -> Any:
        found = Decoder(topic).decode(Message(None, payload, 0, published))
        return found.reason or found.fields

    assert at(both, 2) == {"a": 10, "b": 20}
    assert at(both, later) == {"a": 20, "b": 10}
    assert at(only, 2) == "schema version 0 was registered anew since, so its own is unknown"
    assert at(only, later - 1_000) == {"a": 20, "b": 10}  # a producer's clock may be behind


def described() -> descriptor_pb2.FileDescriptorSet:
    """Of `Ship { int64 id = 1; optional string name = 2; State state = 3; Port port = 4; repeated int32 n = 5; }`."""
    kind = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name="fleet.proto", package="acme", syntax="proto3")
    state = file.enum_type.add(name="State")
    state.value.add(name="NEW", number=0)
    state.value.add(name="SENT", number=1)
    port = file.message_type.add(name="Port")
    port.field.add(name="city", number=1, type=kind.TYPE_STRING, label=kind.LABEL_OPTIONAL)
    ship = file.message_type.add(name="Ship")
    ship.oneof_decl.add(name="_name")
    ship.field.add(name="id", number=1, type=kind.TYPE_INT64, label=kind.LABEL_OPTIONAL)
    ship.field.add(
        **{"name": "name", "number": 2, "type": kind.TYPE_STRING, "label": kind.LABEL_OPTIONAL},
        **{"proto3_optional": True, "oneof_index": 0},
    )
    ship.field.add(name="state", number=3, type=kind.TYPE_ENUM, type_name=".acme.State", label=kind.LABEL_OPTIONAL)
    ship.field.add(name="port", number=4, type=kind.TYPE_MESSAGE, type_name=".acme.Port", label=kind.LABEL_OPTIONAL)
    ship.field.add(name="n", number=5, type=kind.TYPE_INT32, label=kind.LABEL_REPEATED)
    return descriptor_pb2.FileDescriptorSet(file=[file])


PROTO_DDL = "id BIGINT, name STRING, state STRING, port STRUCT<city: STRING>, n ARRAY<INT>"


def test_protobuf_native() -> None:
    data = {
        "fileDescriptorSet": base64.b64encode(described().SerializeToString()).decode(),
        "rootMessageTypeName": "acme.Ship",
        "rootFileDescriptorName": "fleet.proto",
    }
    topic = Topic("ships", PROTO_DDL, schemas=(schema("PROTOBUF_NATIVE", data),))
    assert decoded(topic, b"\x08\x07\x18\x01\x22\x06\x0a\x04Kiel\x2a\x02\x01\x02") == {
        **{"id": 7, "state": "SENT", "port": {"city": "Kiel"}, "n": [1, 2]}
    }
    assert decoded(topic, b"\x12\x01a") == {"id": 0, "name": "a", "state": "NEW", "n": []}
    assert decoded(topic, b"\xff\xff") == "no Protobuf message"


def test_protobuf_by_its_list_of_fields() -> None:
    listed = [
        {"number": 1, "name": "id", "type": "INT64", "label": "LABEL_OPTIONAL", "definition": None},
        {"number": 2, "name": "name", "type": "STRING", "label": "LABEL_OPTIONAL", "definition": None},
        {"number": 4, "name": "port", "type": "MESSAGE", "label": "LABEL_OPTIONAL", "definition": None},
        {"number": 5, "name": "DESCRIPTOR", "type": "INT32", "label": "LABEL_OPTIONAL", "definition": None},
    ]
    registered = schema("PROTOBUF", {}, __PARSING_INFO__=json.dumps(listed))
    topic = Topic("ships", "id BIGINT, name STRING", schemas=(registered,))
    assert decoded(topic, b"\x08\x07\x12\x01a\x22\x06\x0a\x04Kiel\x28\x01") == {"id": 7, "name": "a"}


@pytest.mark.parametrize(
    ("type", "payload", "ddl", "value"),
    [
        ("STRING", "Zoë".encode(), "STRING", "Zoë"),
        ("INT8", b"\xff", "INT", -1),
        ("INT16", b"\x01\x00", "INT", 256),
        ("INT32", struct.pack(">i", -5), "BIGINT", -5),
        ("INT64", struct.pack(">q", 2**40), "BIGINT", 2**40),
        ("FLOAT", struct.pack(">f", 0.5), "DOUBLE", 0.5),
        ("DOUBLE", struct.pack(">d", 0.1), "DOUBLE", 0.1),
        ("BOOLEAN", b"\x01", "BOOLEAN", True),
        ("TIMESTAMP", struct.pack(">q", 1_500), "TIMESTAMP", 1_500_000),
        ("INSTANT", struct.pack(">qi", 1, 500), "TIMESTAMP", 1_000_000),
        ("LOCAL_DATE", struct.pack(">q", 20484), "DATE", 20484),
        ("LOCAL_DATE_TIME", struct.pack(">qq", 1, 1_000), "TIMESTAMP", 86_400_000_001),
    ],
)
def test_primitive_schemas(type: str, payload: bytes, ddl: str, value: Any) -> None:
    topic = Topic("ships", f"value {ddl}", encoding=Encoding.STRING, schemas=(schema(type),))
    assert decoded(topic, payload) == {"value": value}


def test_payloads_of_any_bytes() -> None:
    topic = Topic("ships", "value BINARY", encoding=Encoding.BYTES, schemas=(schema("BYTES"),))
    assert decoded(topic, b"\xff") == {"value": b"\xff"}


def test_primitive_payloads_that_are_none() -> None:
    assert decoded(Topic("ships", "v INT", schemas=(schema("INT32"),)), b"abc") == "no INT32: it has 3 bytes"
    two = Topic("ships", "v INT, w INT", schemas=(schema("INT32"),))
    assert decoded(two, struct.pack(">i", 5)) == "one value, where 2 fields are declared: 5"


def key_value(kind: str, key: Any, value: Any) -> RegisteredSchema:
    parts = {"key": json.loads(key.data or '""'), "value": json.loads(value.data or '""')}
    types = {"key.schema.type": key.type, "value.schema.type": value.type, "kv.encoding.type": kind}
    return schema("KEY_VALUE", parts, **types)


def keyed(topic: Topic, payload: bytes | None, *, key: str | None, version: int | None = 0) -> Any:
    """The text of the row's key, and the fields, a reason, or None for a tombstone."""
    names = [["id"], ["lang", "language"]][: 1 if "lang" not in topic.fields.names else 2]
    found = Decoder(topic, names).decode(Message(key, payload, version, 1))
    return found.key, found.reason or (None if found.is_tombstone else found.fields)


ID = schema("JSON", record({"name": "id", "type": "long"}))
NAME = schema("JSON", record({"name": "name", "type": "string"}))


def test_key_value_separated() -> None:
    topic = Topic("ships", "id BIGINT, name STRING", schemas=(key_value("SEPARATED", ID, NAME),))
    key = base64.b64encode(b'{"id": 7}').decode()
    assert keyed(topic, b'{"name": "Ada"}', key=key) == ("7", {"id": 7, "name": "Ada"})
    assert keyed(topic, None, key=key) == ("7", None)
    assert keyed(topic, b"", key=key) == ("7", None)
    assert keyed(topic, b"{}", key="7") == ("7", "message key 7 is not in base64")


def test_a_key_value_with_a_text_for_a_key() -> None:
    topic = Topic("ships", "name STRING", schemas=(key_value("SEPARATED", schema("STRING"), NAME),))
    assert keyed(topic, b'{"name": "Ada"}', key=base64.b64encode(b"S7").decode()) == ("S7", {"name": "Ada"})


def test_key_value_inline() -> None:
    def inline(key: bytes, value: bytes | None) -> bytes:
        end = struct.pack(">i", -1) if value is None else struct.pack(">i", len(value)) + value
        return struct.pack(">i", len(key)) + key + end

    schemas = (key_value("INLINE", schema("INT64"), NAME),)
    topic = Topic("ships", "name STRING", schemas=schemas)
    assert keyed(topic, inline(struct.pack(">q", 7), b'{"name": "Ada"}'), key=None) == ("7", {"name": "Ada"})
    assert keyed(topic, inline(struct.pack(">q", 7), None), key=None) == ("7", None)
    assert keyed(topic, b"\0\0\0\x09abc", key=None) == (None, "no KeyValue")


@pytest.mark.parametrize(
    ("encoding", "key", "text"),
    [
        (KeyEncoding.TEXT, "7", "7"),
        (KeyEncoding.JSON, '{"id": 7}', "7"),
        (KeyEncoding.JSON, '{"number": 7}', "7"),  # the only field is the key, whatever its name
        (KeyEncoding.JSON, "7", "7"),
        (KeyEncoding.BYTES, base64.b64encode(b"7").decode(), "7"),
        (KeyEncoding.BYTES, base64.b64encode(b'{"id": 7}').decode(), "7"),
        (KeyEncoding.BYTES, "not base64", "not base64"),
        (KeyEncoding.NONE, "partition 7", None),
    ],
)
def test_keys_as_they_are_declared(encoding: KeyEncoding, key: str, text: str | None) -> None:
    topic = Topic("ships", "id BIGINT", key_encoding=encoding)
    assert keyed(topic, None, key=key, version=None) == (text, None)


def test_a_key_of_several_columns_is_a_json_array_in_their_order() -> None:
    topic = Topic("ships", "id BIGINT, lang STRING", key_encoding=KeyEncoding.JSON)
    key = '{"language": "de", "id": 7}'
    assert keyed(topic, None, key=key, version=None) == ('[7,"de"]', None)


def resolved(written: Any, newest: Any, value: Any, ddl: str) -> Any:
    """The field `v` of a record that an older schema wrote, as one of type `ddl`."""
    old, new = (record({"name": "v", "type": each}) for each in (written, newest))
    schemas = schema("AVRO", old), schema("AVRO", new, version=1, at=1)
    return decoded(Topic("ships", f"v {ddl}", encoding=Encoding.AVRO, schemas=schemas), in_avro(old, {"v": value}))


def test_a_union_is_resolved_by_what_was_written() -> None:
    one = record({"name": "x", "type": "int"}, name="One")
    two, newer = record({"name": "y", "type": "int"}, name="Two"), {"name": "z", "type": "int", "default": 7}
    added = {**two, "fields": [*two["fields"], newer]}
    found = resolved(["null", one, two], ["null", one, added], {"y": 1}, "STRUCT<y: INT, z: INT>")
    assert found == {"v": {"y": 1, "z": 7}}


def test_a_text_beside_an_enum_stays_a_text() -> None:
    known = {"type": "enum", "name": "Flag", "symbols": ["NO"], "default": "NO"}
    assert resolved(["string", known], ["string", known | {"doc": ""}], ("string", "SE"), "STRING") == {"v": "SE"}


@pytest.mark.parametrize("depth", [600, 100_000])
def test_records_within_themselves_end_no_process(depth: int) -> None:
    """The payload is all that is needed for it: two bytes a record."""
    node = record({"name": "id", "type": "int"}, {"name": "next", "type": ["null", "Ship"]})
    topic = Topic("ships", "id INT", encoding=Encoding.AVRO, schemas=(schema("AVRO", node),))
    found = decoded(topic, b"\0\2" * depth + b"\0\0")
    assert found == ({"id": 0} if depth == 600 else "nested more than 1,000 levels deep")


def test_an_array_of_null_takes_no_memory() -> None:
    """Ten bytes stand for 2**40 of them."""
    endless = schema("AVRO", record({"name": "v", "type": {"type": "array", "items": "null"}}))
    topic = Topic("ships", "v ARRAY<STRING>", encoding=Encoding.AVRO, schemas=(endless,))
    reason = "schema version 0 can't be read: an array of null: a few bytes can stand for any number of them"
    assert decoded(topic, b"\x80\x80\x80\x80\x80\x80\x01\x00") == reason


NESTED = record({"name": "id", "type": "long"}, {"name": "v", "type": {"type": "map", "values": "double"}})
SCHEMAS = [
    schema("JSON"),
    schema("STRING"),
    schema("BYTES"),
    schema("INSTANT"),
    schema("AVRO", NESTED),
    schema("AVRO", {"type": "record", "name": "Ship", "fields": [{"name": "id"}]}),
    schema("PROTOBUF", record(), __PARSING_INFO__="[1]"),
    schema("PROTOBUF_NATIVE", {"fileDescriptorSet": "//8=", "rootMessageTypeName": "Ship"}),
    RegisteredSchema(version=0, type="KEY_VALUE", data="{", properties={"kv.encoding.type": "SEPARATED"}),
    RegisteredSchema(version=0, type="KEY_VALUE", data="", properties={"value.schema.type": "DOUBLE"}),
]
PAYLOADS = st.binary(max_size=30) | st.sampled_from(
    [b'{"id": 1, "v": {"a": 1e999}}', b'{"id":' * 1001, b'{"v": "\\ud800"}']
)


@given(st.sampled_from(SCHEMAS), st.sampled_from(KeyEncoding), st.none() | st.text(), st.none() | PAYLOADS)
def test_whatever_is_sent_has_fields_or_a_reason(
    sent: RegisteredSchema, written: KeyEncoding, key: str | None, payload: bytes | None
) -> None:
    topic = Topic("ships", "id BIGINT, v MAP<STRING, DOUBLE>", key_encoding=written, schemas=(sent,))
    found = Decoder(topic, [["id"]]).decode(Message(key, payload, 0, 1_000_000))
    assert found.is_tombstone or found.reason or found.fields is not None


def test_an_empty_payload_is_a_tombstone_except_of_a_text() -> None:
    assert keyed(Topic("ships", "id BIGINT"), b"", key="7", version=None) == ("7", None)
    assert keyed(Topic("ships", "v STRING", encoding=Encoding.STRING), b"", key="7", version=None) == ("7", {"v": ""})
