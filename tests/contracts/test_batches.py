"""A batch of messages has what the decoder gives for each; whatever one of them is, the others are decoded."""

import base64
import json
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pulsar_lakehouse.contracts.batches import BatchDecoder
from pulsar_lakehouse.contracts.envelopes import Debezium
from pulsar_lakehouse.contracts.schemas import RegisteredSchema
from pulsar_lakehouse.contracts.topics import Topic
from pulsar_lakehouse.contracts.types import KeyEncoding
from tests.contracts.test_decoder import NAME, described, in_avro, key_value, record, schema

NUMBERS = record({"name": "v", "type": {"type": "map", "values": "int"}})
TEXTS = record({"name": "v", "type": {"type": "array", "items": "string"}})
MICROS = record({"name": "v", "type": {"type": "long", "logicalType": "timestamp-micros"}})
LONG = record({"name": "v", "type": "long"})
ID = record({"name": "id", "type": "string"})
NATIVE = {
    "fileDescriptorSet": base64.b64encode(described().SerializeToString()).decode(),
    "rootMessageTypeName": "acme.Ship",
}


def decoded(topic: Topic, payload: bytes | None, *, key: str | None = None, published: int | None = 0) -> Any:
    """What a batch of this message alone gives."""
    decoder = BatchDecoder(topic, [["id"]])
    times = pa.array([published], pa.timestamp("us", "UTC"))
    columns = pa.array([payload], pa.binary()), pa.array([key], pa.string()), pa.array([0], pa.int64())
    [found] = decoder.decode(*columns, times).to_pylist()
    return found


def topic(ddl: str, *schemas: RegisteredSchema) -> Topic:
    return Topic("ships", ddl, schemas=schemas)


@pytest.mark.parametrize(
    ("declared", "payload", "key", "reason"),
    [
        (topic("v MAP<STRING, BIGINT>", schema("AVRO", NUMBERS)),
         in_avro(NUMBERS, {"v": {"ab": 1}}).replace(b"ab", b"\xff\xfe"), None, "v has a key that is not UTF-8"),
        (topic("v STRING", schema("AVRO", TEXTS)),
         in_avro(TEXTS, {"v": ["ab"]}).replace(b"ab", b"\xff\xfe"), None, "v is not UTF-8 at byte 2"),
        (topic("name STRING", key_value("SEPARATED", schema("AVRO", ID), NAME)),
         b'{"name": "a"}', base64.b64encode(b"\x04\xff\xfe").decode(), "message key is not UTF-8 at byte 0"),
        (topic("v TIMESTAMP_MILLIS", schema("AVRO", MICROS)),
         in_avro(LONG, {"v": 2**62 // 1000 * 1000}), None, "v is out of range: 4611686018427387000"),
        (topic("v STRING", schema("AVRO", {"type": "record"})), b"a", None,
         "schema version 0 can't be read: \"name\" is a required field missing from the schema: {'type': 'record'}"),
        (topic("v DECIMAL(3, 1)"), b'{"v": "x", "v": 1}', None, "v is no decimal(3,1) each time"),
        (topic("v TIMESTAMP"), b'{"v": "2026-01-31T12:00.5Z"}', None, "v is no timestamp: 2026-01-31T12:00.5Z"),
    ],
)  # fmt: skip
def test_a_message_that_can_not_be_read_has_a_reason(
    declared: Topic, payload: bytes, key: str | None, reason: str
) -> None:
    assert decoded(declared, payload, key=key)["reason"] == reason


def test_without_a_publish_time_the_newest_schema_of_a_version_counts() -> None:
    declared = topic("v BIGINT", schema("AVRO", MICROS, at=1), schema("AVRO", LONG, at=2))
    assert decoded(declared, in_avro(LONG, {"v": 5}), published=None)["fields"] == {"v": 5}


def test_times_in_milliseconds_are_times() -> None:
    found = decoded(topic("v TIMESTAMP_MILLIS, w ARRAY<TIMESTAMP_MILLIS>"), b'{"v": 1500, "w": [0]}')
    assert found["fields"] == {"v": datetime.fromtimestamp(1.5, UTC), "w": [datetime.fromtimestamp(0, UTC)]}


CHANGES = Topic(
    "cities",
    """
        id INT NOT NULL, v DECIMAL(3, 1), w DATE, name STRING NOT NULL, tags ARRAY<BIGINT>,
        __op STRING, __source_lsn BIGINT
    """,
    key_encoding=KeyEncoding.JSON,
    envelope=Debezium(),
)


def change(after: Any, *, op: str = "u", before: Any = None, source: Any = None) -> dict[str, Any]:
    return {"before": before, "after": after, "source": source, "op": op, "ts_ms": 1}


FUZZED = {
    "Avro": (topic("v MAP<STRING, INT>", schema("AVRO", NUMBERS)), in_avro(NUMBERS, {"v": {"ab": 1, "c": 2}})),
    "texts in Avro": (topic("v STRING", schema("AVRO", TEXTS)), in_avro(TEXTS, {"v": ["ab", "c"]})),
    "times in Avro": (topic("v TIMESTAMP_MILLIS", schema("AVRO", MICROS)), in_avro(LONG, {"v": 1_000})),
    "Protobuf": (topic("id BIGINT, name STRING, port STRUCT<city: STRING>", schema("PROTOBUF_NATIVE", NATIVE)),
                 b"\x08\x07\x12\x01a\x22\x06\x0a\x04Kiel\x2a\x02\x01\x02"),
    "KeyValue": (topic("name STRING", key_value("INLINE", schema("AVRO", ID), NAME)),
                 b'\0\0\0\x03\x04ab\0\0\0\x0d{"name": "a"}'),
    "envelope": (CHANGES, json.dumps(change({"id": 1, "v": "1.5", "w": "2026-01-31"})).encode()),
    "JSON": (topic("v DECIMAL(3, 1), w DATE, x MAP<STRING, BIGINT>"), b'{"v": 1.5, "w": "2026-01-31", "x": {"a": 1}}'),
}  # fmt: skip


@pytest.mark.parametrize("name", FUZZED)
@settings(max_examples=300, deadline=None)
@given(data=st.data())
def test_no_bytes_stop_a_batch(name: str, data: st.DataObject) -> None:
    declared, payload = FUZZED[name]
    changed = bytearray(payload)
    for at in data.draw(st.lists(st.integers(0, len(payload) - 1), max_size=4)):
        changed[at] = data.draw(st.integers(0, 255))
    found = decoded(declared, bytes(changed[: data.draw(st.integers(1, len(payload)))]))
    assert found["reason"] is not None or found["fields"] is not None or found["is_tombstone"]


UNAVAILABLE = "__debezium_unavailable_value"
VALUES = st.sampled_from(
    [None, 1, -1, 2**40, 1.5, "1.5", "Mg==", "2026-01-31", "a", "\"é\n", True, [1], {"scale": 1, "value": "AQ=="}, {},
     UNAVAILABLE, [UNAVAILABLE], [*UNAVAILABLE.encode()]]
)  # fmt: skip
ROWS = st.dictionaries(st.sampled_from(["id", "v", "w", "name", "tags", "more"]), VALUES) | VALUES
SOURCES = st.none() | st.dictionaries(st.sampled_from(["lsn", "ts_ms"]), VALUES) | VALUES


@settings(max_examples=500, deadline=None)
@given(
    op=st.sampled_from("cruds"),
    after=st.builds(lambda row: {"id": 1, "name": "Ulm", **row} if isinstance(row, dict) else row, ROWS),
    before=ROWS,
    source=SOURCES,
    key=st.sampled_from(['{"id":1}', '{"id":1,"v":2}', '{"id":null}', "{}", "1", "{", None]),
    is_wrapped=st.booleans(),
)
def test_a_batch_has_what_the_decoder_gives(
    op: str, after: Any, before: Any, source: Any, key: str | None, is_wrapped: bool
) -> None:
    sent = change(after, op=op, before=before, source=source)
    given = {"schema": {}, "payload": sent} if is_wrapped else sent
    payload = json.dumps(given, ensure_ascii=False).encode()
    escaped = payload.replace(b'"ts_ms": 1', b'"ts_ms": 1, "\\u0041": 1')  # which only the decoder reads
    found, expected = (decoded(CHANGES, each, key=key) for each in (payload, escaped))
    assert found | {"unavailable": found["unavailable"] or []} == expected


@pytest.mark.parametrize(
    ("payload", "fields", "reason"),
    [
        (b'[{"id": 1}, {"id": 2}]', {"lines": [{"id": 1}, {"id": 2}]}, None),
        (b' [{"id": 1}]', {"lines": [{"id": 1}]}, None),
        (b'{"lines": [{"id": 1}]}', {"lines": [{"id": 1}]}, None),
        (b'[{"id": 1}, {"no": 2}]', {"lines": [{"id": 1}, {"id": None}]}, "lines[1].id is missing"),
        (b"[]", {"lines": []}, None),
        (b"7", None, "not a JSON object"),
    ],
)
def test_a_payload_can_be_the_array_of_rows(payload: bytes, fields: object, reason: str | None) -> None:
    found = decoded(Topic("orders", "lines ARRAY<STRUCT<id: BIGINT NOT NULL>>", rows="lines"), payload)
    assert (found["fields"], found["reason"]) == (fields, reason)
