"""A message of a replicated database in; the row, what deletes it and what it leaves out."""

import io
import json
import struct
from base64 import b64encode
from dataclasses import replace
from decimal import Decimal
from typing import Any

import fastavro
import pytest

from pulsar_lakehouse.contracts.decoder import Decoded, Decoder, Message
from pulsar_lakehouse.contracts.envelopes import Debezium
from pulsar_lakehouse.contracts.registered import differences
from pulsar_lakehouse.contracts.topics import Topic
from pulsar_lakehouse.contracts.types import KeyEncoding
from tests.contracts.test_decoder import key_value, record, schema

PLACEHOLDER = "__debezium_unavailable_value"
IN_BASE64 = b64encode(PLACEHOLDER.encode()).decode()
CITIES = Topic(
    "cities",
    """
        id INT NOT NULL, name STRING NOT NULL, tags ARRAY<STRING>,
        __op STRING, __source_lsn BIGINT, __source_ts_ms BIGINT
    """,
    key_encoding=KeyEncoding.JSON,
    envelope=Debezium(),
)
SOURCE = {"lsn": 77, "ts_ms": 5000, "table": "cities"}
KEY = '{"id":1}'


def decoded(payload: Any, *, key: str | None = KEY, topic: Topic = CITIES) -> Decoded:
    data = None if payload is None else json.dumps(payload).encode()
    return Decoder(topic, [["id"]]).decode(Message(key, data, None, 0))


CAN_NOT_BE_READ = 'the schema beside the payload can\'t be read: {"type":"struct","fields":5}'


def envelope(op: Any, *, after: Any = None, before: Any = None) -> dict[str, Any]:
    return {"before": before, "after": after, "source": SOURCE, "op": op, "ts_ms": 6000, "transaction": None}


@pytest.mark.parametrize("op", ["c", "r", "u"])
def test_the_row_is_what_it_is_after_the_change(op: str) -> None:
    after, before = {"id": 1, "name": "Ulm"}, {"id": 1, "name": "Rom"}
    row = {**after, "__op": op, "__source_lsn": 77, "__source_ts_ms": 5000}
    assert decoded(envelope(op, after=after, before=before)) == Decoded(row, None, "1", False)


def test_of_a_deleted_row_only_the_key_and_the_metadata_are_known() -> None:
    row = {"id": 1, "__op": "d", "__source_lsn": 77, "__source_ts_ms": 5000}
    for before in ({"id": 1, "name": ""}, {"id": 1, "name": "Ulm", "tags": ["x"]}):  # by Postgres' replica identity
        assert decoded(envelope("d", before=before)) == Decoded(row, None, "1", True)
    assert decoded(envelope("d", before=None)).fields == row  # the message key has it
    assert decoded(envelope("d", before={"id": 1, "name": ""}), key=None).fields == row


def test_a_null_payload_deletes_without_metadata() -> None:
    assert decoded(None) == Decoded(None, None, "1", True)


def test_a_truncation_has_no_key() -> None:
    metadata = {"__op": "t", "__source_lsn": 77, "__source_ts_ms": 5000}
    assert decoded(envelope("t"), key="default") == Decoded(metadata, None, None, True, (), True)
    assert decoded({"op": "t", "source": {"lsn": 7}}) == Decoded(
        {"__op": "t", "__source_lsn": 7}, None, None, True, (), True
    )


def test_connects_schemas_are_opened() -> None:
    after = {"id": 1, "name": "Ulm"}
    wrapped = {"schema": {"type": "struct"}, "payload": envelope("c", after=after)}
    key = json.dumps({"schema": {"type": "struct"}, "payload": {"id": 1}})
    assert decoded(wrapped, key=key) == decoded(envelope("c", after=after))


def test_topics_that_are_unwrapped_already_are_read_as_well() -> None:
    row = {"id": 1, "name": "Ulm", "__op": "u", "__source_lsn": 77}
    assert decoded({**row, "__deleted": "false"}) == Decoded(row, None, "1", False)
    deleted = {"id": 1, "name": "", "__source_lsn": 78, "__deleted": "true"}
    assert decoded(deleted) == Decoded({"id": 1, "__source_lsn": 78}, None, "1", True)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("name STRING NOT NULL", PLACEHOLDER),
        ("data STRING", IN_BASE64),  # bytes
        ("tags ARRAY<STRING>", [PLACEHOLDER]),
        ("blobs ARRAY<STRING>", [IN_BASE64]),
        ("counts ARRAY<INT>", [*PLACEHOLDER.encode()]),
        ("ids ARRAY<STRING>", ["b68a35a7-17ad-35b3-af2a-ae46edb4545a"]),
        ("hash MAP<STRING, STRING>", {PLACEHOLDER: PLACEHOLDER}),
        ("hash STRING", json.dumps({PLACEHOLDER: PLACEHOLDER}, separators=(",", ":"))),
    ],
)
def test_a_value_that_the_database_did_not_log_is_unavailable(field: str, value: Any) -> None:
    name, topic = field.split()[0], Topic("cities", f"id INT, {field}", envelope=Debezium())
    found = decoded(envelope("u", after={"id": 1, name: value}), topic=topic)
    assert found == Decoded({"id": 1, name: None}, None, KEY, False, (name,))


def test_a_null_is_no_unavailable_value() -> None:
    found = decoded(envelope("u", after={"id": 1, "name": "Ulm", "tags": None}))
    assert found.unavailable == ()


def test_the_placeholder_can_be_another() -> None:
    topic = Topic("cities", "id INT, name STRING", envelope=Debezium(unavailable_value="?"))
    assert decoded(envelope("u", after={"id": 1, "name": "?"}), topic=topic).unavailable == ("name",)


@pytest.mark.parametrize(
    ("payload", "reason"),
    [
        (envelope(["c"], after={"id": 1}), 'op is none of c, r, u, d, t: ["c"]'),
        ({"schema": {"type": "struct", "fields": 5}, "payload": {}}, CAN_NOT_BE_READ),
        (envelope("x", after={"id": 1}), "op is none of c, r, u, d, t: x"),
        (envelope("c"), "op is c, but after is missing"),
        (envelope("c", after=[1]), "no object: [1]"),
        (envelope("c", after={"id": "one", "name": "Ulm"}), "id is no int: one"),
        (envelope("c", after={"id": 1}), "name is missing"),
        ([], "not a JSON object"),
        ({"schema": {}, "payload": 7}, "no object: 7"),
    ],
)
def test_what_is_no_change_of_a_row_has_a_reason(payload: Any, reason: str) -> None:
    assert decoded(payload).reason == reason


DECIMAL = {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2, "connect.name": "Decimal"}
CONNECT_DECIMAL = {"type": "bytes", "name": "org.apache.kafka.connect.data.Decimal", "parameters": {"scale": "2"}}
PAID = {"id": 1, "amount": "B8Y=", "rates": ["Mg==", None]}
PAYMENTS = Topic("payments", "id INT, amount DECIMAL(9, 2), rates ARRAY<DECIMAL(9, 2)>", envelope=Debezium())


def test_decimals_in_base64_are_read_by_the_schema_beside_the_payload() -> None:
    fields = [{"field": "amount", **CONNECT_DECIMAL}, {"field": "rates", "type": "array", "items": CONNECT_DECIMAL}]
    beside = {"type": "struct", "fields": [{"field": "after", "type": "struct", "fields": fields}]}
    wrapped = {"schema": beside, "payload": envelope("c", after=PAID)}
    row = {"id": 1, "amount": Decimal("19.90"), "rates": [Decimal("0.50"), None]}
    assert decoded(wrapped, topic=PAYMENTS).fields == row


def registered(*fields: dict[str, Any]) -> dict[str, Any]:
    """The record that Connect's converter registers for an envelope: `after` refers to what `before` has defined."""
    row = {"type": "record", "name": "Value", "fields": list(fields)}
    source = {"type": "record", "name": "Source", "fields": [{"name": "lsn", "type": ["null", "long"]}]}
    parts = {"before": ["null", row], "after": ["null", "Value"], "source": source, "op": "string"}
    of_envelope = [{"name": name, "type": kind} for name, kind in parts.items()]
    return {"type": "record", "name": "Envelope", "namespace": "shop.public.payments", "fields": of_envelope}


def test_decimals_in_base64_are_read_by_the_registered_schema() -> None:
    amount = {"name": "amount", "type": ["null", DECIMAL]}
    rates = {"name": "rates", "type": {"type": "array", "items": ["null", DECIMAL]}}
    written = schema("JSON", registered(amount, rates))
    payload = json.dumps(envelope("c", after=PAID)).encode()
    found = Decoder(replace(PAYMENTS, schemas=(written,))).decode(Message(None, payload, 0, 1))
    assert found.fields == {"id": 1, "amount": Decimal("19.90"), "rates": [Decimal("0.50"), None]}


def test_a_decimal_in_base64_is_malformed_if_no_schema_tells_its_scale() -> None:
    assert decoded(envelope("c", after=PAID), topic=PAYMENTS).reason == (
        "amount is no decimal(9,2): B8Y=; rates[0] is no decimal(9,2): Mg=="
    )


def test_avro_of_connects_converter_begins_with_an_id() -> None:
    written = registered({"name": "id", "type": "int"}, {"name": "name", "type": "string"})
    payload = io.BytesIO(b"\0\0\0\0\7")
    payload.seek(5)
    change = {"before": None, "after": {"id": 1, "name": "Ulm"}, "source": {"lsn": 77}, "op": "c"}
    fastavro.schemaless_writer(payload, written, change)
    by_connect = schema("AVRO", written, __AVRO_READ_OFFSET__="5")
    found = Decoder(replace(CITIES, schemas=(by_connect,)), [["id"]]).decode(Message(KEY, payload.getvalue(), 0, 1))
    assert found == Decoded({"id": 1, "name": "Ulm", "__op": "c", "__source_lsn": 77}, None, "1", False)


@pytest.mark.parametrize("kind", ["INLINE", "SEPARATED"])
def test_the_envelope_can_be_the_value_of_a_pair(kind: str) -> None:
    value = registered({"name": "id", "type": "int"}, {"name": "name", "type": "string"})
    pair = key_value(kind, schema("JSON", record({"name": "id", "type": "int"})), schema("JSON", value))
    key, row = b'{"id": 1}', {"id": 1, "__op": "d", "__source_lsn": 77, "__source_ts_ms": 5000}
    payload = json.dumps(envelope("d", before={"id": 1, "name": ""})).encode()
    if kind == "INLINE":
        payload = struct.pack(">i", len(key)) + key + struct.pack(">i", len(payload)) + payload
    message = Message(None if kind == "INLINE" else b64encode(key).decode(), payload, 0, 1)
    assert Decoder(replace(CITIES, schemas=(pair,)), [["id"]]).decode(message) == Decoded(row, None, "1", True)


def test_what_differs_from_the_declaration_is_told_of_the_row() -> None:
    written = registered({"name": "id", "type": "string"})
    assert differences(CITIES, schema("JSON", written)) == [
        "id is registered as string, but declared as int",
        "name is not registered, but declared as a required string",
    ]
