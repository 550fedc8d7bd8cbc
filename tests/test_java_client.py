"""What Pulsar's Java client sends, byte by byte."""

import json
from base64 import b64encode
from typing import Any

import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet  # type: ignore[import-untyped]

from tests.bronze.broker_topics import Row, Topics
from tests.java_client import JavaClient, Pair, key_value, message, schema

RECORD = json.dumps({"type": "record", "name": "Store", "fields": [{"name": "id", "type": ["null", "long"]}]})


@pytest.mark.parametrize(
    ("written_as", "value", "payload"),
    [
        (schema("BYTES"), b"\x00\xff", b"\x00\xff"),
        (schema("BYTES"), b"", b""),
        (schema("BYTES"), None, None),
        (schema("STRING"), "é", "é".encode()),
        (schema("INT16"), 258, b"\x01\x02"),
        (schema("BOOLEAN"), True, b"\x01"),
        (schema("INSTANT"), "1970-01-01T00:00:01Z", bytes([0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0])),
        (schema("JSON", RECORD), {"id": 7}, b'{"id":7}'),
        (schema("AVRO", RECORD), {"id": {"long": 7}}, b"\x02\x0e"),
        (schema("AVRO", RECORD), b"no record", b"no record"),
        (
            key_value(schema("STRING"), schema("INT8"), "INLINE"),
            Pair("a", 5),
            b"\x00\x00\x00\x01a\x00\x00\x00\x01\x05",
        ),
    ],
)
def test_writes_values_by_their_schema(
    topics: Topics, java: JavaClient, written_as: dict[str, Any], value: Any, payload: bytes | None
) -> None:
    topic = topics.create()
    java.send(topic, [message(value)], written_as)
    assert [row["payload"] for row in topics.read(topic)] == [payload]


def test_writes_the_key_of_a_separated_pair_as_the_key_of_the_message(topics: Topics, java: JavaClient) -> None:
    topic = topics.create()
    written_as = key_value(schema("STRING"), schema("JSON", RECORD), "SEPARATED")
    java.send(topic, [message(Pair("a", {"id": 7})), message(Pair("a", None))], written_as)
    assert [(row["key"], row["payload"]) for row in topics.read(topic)] == [("YQ==", b'{"id":7}'), ("YQ==", None)]


def test_writes_protobuf(topics: Topics, java: JavaClient) -> None:
    file = FileDescriptorProto(name="store.proto", package="shop", syntax="proto3")
    field = file.message_type.add(name="Store").field.add(name="id", number=1, type="TYPE_INT64")
    field.label, field.json_name = field.LABEL_OPTIONAL, "id"
    described = b64encode(FileDescriptorSet(file=[file]).SerializeToString()).decode()
    root = {"rootMessageTypeName": "shop.Store", "rootFileDescriptorName": "store.proto"}
    topic = topics.create()
    written_as = schema("PROTOBUF_NATIVE", json.dumps({"fileDescriptorSet": described, **root}))
    java.send(topic, [message({"id": 7})], written_as)
    assert [row["payload"] for row in topics.read(topic)] == [b"\x08\x07"]


def test_writes_what_a_message_has_beside_its_value(topics: Topics, java: JavaClient) -> None:
    topic = topics.create()
    sent = [message(b"1", key="a", properties={"from": "till"}, event_time=5_000), message(b"2", key=b"\x00\xff")]
    positions = java.send(topic, sent, batched=True, compression="ZSTD")

    def shown(row: Row) -> tuple[Any, ...]:
        event_time = row["event_time"] and row["event_time"].timestamp()
        return row["key"], dict(row["properties"]), event_time, row["batch_index"]

    rows = topics.read(topic)
    assert [shown(row) for row in rows] == [("a", {"from": "till"}, 5.0, 0), ("AP8=", {}, None, 1)]
    assert positions == [(row["ledger_id"], row["entry_id"]) for row in rows]
