import json
from decimal import Decimal
from io import BytesIO
from typing import Any

import pytest
from fastavro import parse_schema, schemaless_reader

from pulsar_lakehouse.contracts.topics import Encoding, Topic
from pulsar_lakehouse.errors import ConfigurationError
from pulsar_lakehouse.pulsar.message_lines import message_of, read_lines
from pulsar_lakehouse.pulsar.produce import Message, MessageSchema

STORES = Topic("stores", "id BIGINT NOT NULL")
SHIPS = Topic("ships", "id BIGINT NOT NULL, speed DOUBLE, price DECIMAL(6, 2)", encoding=Encoding.AVRO)


def test_a_line_is_a_message() -> None:
    lines = [
        '{"key": "1", "event_time": "2026-01-31T12:00:00Z", "payload": {"id": 1, "tags": ["ü", null]}}',
        "",
        '{"payload": {"price": 12345678901234567.890}, "properties": {"sent-by": "me"}}',
        '{"key": "1", "event_time": "2026-01-31T12:00:00.250", "payload": null}',
    ]
    assert list(read_lines(lines, "some.jsonl", STORES)) == [
        Message("1", '{"id": 1, "tags": ["ü", null]}'.encode(), 1769860800000),
        Message("", b'{"price": 12345678901234567.890}', 0, {"sent-by": "me"}),
        Message("1", None, 1769860800250),
    ]


def test_keys_and_payloads_can_be_bytes() -> None:
    """A payload of no bytes is another one than none at all."""
    assert message_of({"key_bytes": "AAAAAAAAAAE=", "payload_bytes": "CAE="}, STORES) == Message(
        "AAAAAAAAAAE=", b"\x08\x01", 0
    )
    assert message_of({"payload_bytes": ""}, STORES).payload == b""


def test_a_decimal_keeps_its_digits() -> None:
    assert message_of({"payload": {"price": Decimal("0.10")}}, STORES).payload == b'{"price": 0.10}'


def test_a_schema_can_be_text_or_an_object() -> None:
    schema = {"type": "STRING"}
    assert message_of({"payload": {"id": 1}, "schema": schema}, STORES) == Message(
        "", b'{"id": 1}', 0, schema=MessageSchema("STRING")
    )
    record = {"type": "record", "name": "Ship", "fields": []}
    given = {"type": "JSON", "schema": record, "properties": {"b": "2", "a": "1"}}
    assert message_of({"payload": {}, "schema": given}, STORES).schema == MessageSchema(
        "JSON", json.dumps(record), (("a", "1"), ("b", "2"))
    )


def test_a_payload_of_an_avro_topic_is_written_as_its_record() -> None:
    [message] = read_lines(['{"payload": {"id": 1, "price": 0.10}}'], "ships.jsonl", SHIPS)
    declared = parse_schema(json.loads(SHIPS.pulsar_schema()))
    assert schemaless_reader(BytesIO(message.payload or b""), declared, None) == {
        "id": 1,
        "speed": None,
        "price": Decimal("0.10"),
    }
    given = {"type": "AVRO", "schema": '{"type": "record", "name": "S", "fields": [{"name": "v", "type": "double"}]}'}
    written = message_of({"payload": {"v": Decimal("1.5")}, "schema": given}, SHIPS)
    assert schemaless_reader(BytesIO(written.payload or b""), json.loads(given["schema"]), None) == {"v": 1.5}


SUCH_AS = '{"key": "1", "event_time": "2026-01-31T12:00:00Z", "payload": {"id": 1}}'
NAMES = "key, key_bytes, event_time, properties, schema, payload, payload_bytes"


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("{", "not JSON: Expecting property name enclosed in double quotes: line 1 column 2 (char 1)"),
        ('{"id": 1}', f"must be an object with a payload, such as {SUCH_AS}"),
        ("7", f"must be an object with a payload, such as {SUCH_AS}"),
        ('{"payload": 1, "payload_bytes": "CAE="}', f"must be an object with a payload, such as {SUCH_AS}"),
        ('{"payload": 1, "id": 1}', f"id: must be one of {NAMES}"),
        ('{"payload": 1, "publish_time": "2026-01-31T12:00:00Z"}', f"publish_time: must be one of {NAMES}"),
        ('{"payload": 1, "key": 1}', f"key: 1: must be a text, as in {SUCH_AS}"),
        ('{"payload": 1, "key": "1", "key_bytes": "MQ=="}', "key_bytes: a message has one key: remove this or key"),
        ('{"payload_bytes": "hello"}', "payload_bytes: hello: must be base64, such as aGVsbG8="),
        ('{"payload_bytes": "\u00e9"}', "payload_bytes: \u00e9: must be base64, such as aGVsbG8="),
        (r'{"payload": 1, "key": "\ud800"}', f'key: "\ud800": must be a text, as in {SUCH_AS}'),
        (
            '{"payload": ' + "[" * 100_000,
            "not JSON: maximum recursion depth exceeded while decoding a JSON array from a unicode string",
        ),
        (
            '{"payload": 1, "event_time": "9999-12-31T23:00:00-12:00"}',
            "event_time: 9999-12-31T23:00:00-12:00: must be after 1970-01-01T00:00:00Z, and before the year 10000",
        ),
        ('{"payload": 1, "event_time": "noon"}', "event_time: noon: must be a time such as 2026-01-31T12:00:00Z"),
        (
            '{"payload": 1, "properties": {"a": 1}}',
            'properties: {"a": 1}: must be an object of texts, such as {"sent-by": "me"}',
        ),
        (
            '{"payload": 1, "schema": "AVRO"}',
            'schema: "AVRO": must be such as {"type": "AVRO", "schema": "...", "properties": {}}',
        ),
        (
            '{"payload": 1, "schema": {"type": "XML"}}',
            "schema: type: XML: must be one of STRING, INT8, INT16, INT32, INT64, FLOAT, DOUBLE, BYTES, JSON, "
            "PROTOBUF, AVRO, KEY_VALUE, PROTOBUF_NATIVE",
        ),
        (
            '{"payload": 1, "schema": {"type": "PROTOBUF"}}',
            "payload: with a schema of type PROTOBUF, write it as payload_bytes, in base64",
        ),
    ],
)
def test_a_wrong_line(line: Any, problem: str) -> None:
    with pytest.raises(ConfigurationError) as error:
        list(read_lines(['{"payload": 1}', line], "some.jsonl", STORES))
    assert str(error.value) == f"some.jsonl:2: {problem}"


def test_a_payload_that_does_not_fit_its_avro_schema_is_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"^payload: can't be written with the schema \{"):
        message_of({"payload": {"id": "seven"}}, SHIPS)
