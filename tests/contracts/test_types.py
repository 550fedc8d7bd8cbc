"""Fields of all types: what each takes is what plain Python says, and reasons name the values that do not fit."""

import io
import json
import re
from collections.abc import Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import fastavro
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from pulsar_lakehouse.bronze.landing import bronze_table
from pulsar_lakehouse.contracts.decoding import Decoding, decode, explain
from pulsar_lakehouse.contracts.schemas import RegisteredSchema
from pulsar_lakehouse.contracts.topics import Encoding, Topic
from tests.lake import bronze_row
from tests.messages import message
from tests.typed import DDL, payloads, read

PARCELS = Topic("parcels", DDL)
PATH = re.compile(r"(?:^|; )([\w\[\]'.]+) (?:is|has)\b")


def decoded(
    spark: SparkSession, topic: Topic, sent: Sequence[bytes], columns: str = "", version: int = 0
) -> list[tuple[dict[str, Any], str | None]]:
    """The columns of each payload, and the reason why it is rejected."""
    decoding = Decoding(topic=topic, columns=columns or ", ".join(topic.fields.names))
    rows = [
        (*bronze_row(message(topic.name, payload, key=None, place=place))[:11], version, None, None)
        for place, payload in enumerate(sent)
    ]
    found = spark.createDataFrame(rows, bronze_table(topic).ddl).transform(
        decode, decoding=decoding, reject=F.lit(None).cast("string")
    )
    values = found.orderBy("message.position").drop("message", "reason").toArrow()
    reasons = found.transform(explain, decoding=decoding).orderBy("message.position").collect()
    return list(zip(values.to_pylist(maps_as_pydicts="strict"), (row.reason for row in reasons), strict=True))


def reasons(spark: SparkSession, topic: Topic, sent: Sequence[str]) -> dict[str, str | None]:
    found = decoded(spark, topic, [payload.encode() for payload in sent])
    return {payload: reason for payload, (_, reason) in zip(sent, found, strict=True)}


def test_values_of_all_types(spark: SparkSession) -> None:
    payload = """{
        "id": 1, "pieces": 2, "weight": 1.10, "share": "0.125", "worth": 12345678901234567890123.4500000001,
        "sent": 1767225600123, "seen": 1767225600123456, "arrived": "2026-01-01T01:00:00.5+01:00", "due": "2026-01-31",
        "state": "SENT", "address": {"zip": 10115, "geo": {"lat": 52.5, "at": 0}},
        "lines": [{"sku": "A1", "price": 9.90, "tags": ["x", null], "states": ["NEW"]}, null],
        "numbers": [1, null], "days": [["2026-01-31"], []],
        "limits": {"a": 1.5, "b": null}, "stops": {"Berlin": {"km": 7, "due": "2026-02-01"}}
    }"""
    [(values, reason)] = decoded(spark, PARCELS, [payload.encode()])
    assert reason is None
    assert values == {
        "id": 1,
        "pieces": 2,
        "weight": Decimal("1.10"),
        "share": Decimal("0.125"),
        "worth": Decimal("12345678901234567890123.4500000001"),
        "sent": datetime(2026, 1, 1, 0, 0, 0, 123_000, UTC),
        "seen": datetime(2026, 1, 1, 0, 0, 0, 123_456, UTC),
        "arrived": datetime(2026, 1, 1, 0, 0, 0, 500_000, UTC),
        "due": date(2026, 1, 31),
        "state": "SENT",
        "address": {"zip": 10115, "city": None, "geo": {"lat": 52.5, "at": datetime(1970, 1, 1, tzinfo=UTC)}},
        "lines": [{"sku": "A1", "price": Decimal("9.90"), "tags": ["x", None], "states": ["NEW"]}, None],
        "numbers": [1, None],
        "days": [[date(2026, 1, 31)], []],
        "limits": {"a": Decimal("1.50"), "b": None},
        "stops": {"Berlin": {"km": 7, "due": date(2026, 2, 1)}},
    }


BROKEN = {
    '"weight": 1.005': "weight is no decimal(6,2): 1.005",
    '"weight": 10000': "weight is no decimal(6,2): 10000",
    '"weight": 1.0000000000000000000000000000001': "weight is no decimal(6,2): 1.0000000000000000000000000000001",
    '"weight": null': "weight is missing",
    '"weight": 1, "share": true': "share is no decimal(3,3): true",
    '"weight": 1, "sent": "2026-01-01"': "sent is no timestamp_millis: 2026-01-01",
    '"weight": 1, "sent": 253402300800000': "sent is out of range: 253402300800000",
    '"weight": 1, "seen": 253402300800000000': "seen is out of range: 253402300800000000",
    '"weight": 1, "arrived": "2026-01-01T00:00:00"': "arrived is no timestamp: 2026-01-01T00:00:00",
    '"weight": 1, "due": "2026-02-30"': "due is no date: 2026-02-30",
    '"weight": 1, "state": "GONE"': "state is none of NEW, SENT, LOST: GONE",
    '"weight": 1, "address": {"zip": "x"}': "address.zip is no bigint: x",
    '"weight": 1, "address": {"zip": 1.0, "city": {}}': "address.zip is no bigint: 1.0",
    '"weight": 1, "address": {"city": "Berlin"}': "address.zip is missing",
    '"weight": 1, "address": {"zip": 1, "geo": {"lat": 1e400}}': "address.geo.lat is out of range: 1e400",
    '"weight": 1, "address": "here"': "address is no struct: here",
    '"weight": 1, "lines": {"sku": "A1"}': 'lines is no array: {"sku":"A1"}',
    '"weight": 1, "lines": [{"sku": "A1"}, {"price": 1.005}]': (
        "lines[1].sku is missing; lines[1].price is no decimal(6,2): 1.005"
    ),
    '"weight": 1, "lines": [{"sku": "A1", "tags": "x"}]': "lines[0].tags is no array: x",
    '"weight": 1, "lines": [{"sku": "A1", "states": ["NEW", "GONE"]}]': "lines[0].states[1] is none of NEW, SENT: GONE",
    '"weight": 1, "numbers": [1, "2", 3.5]': "numbers[1] is no bigint: 2; numbers[2] is no bigint: 3.5",
    '"weight": 1, "limits": {"a": 1, "b": "x"}': "limits['b'] is no decimal(6,2): x",
    '"weight": 1, "limits": {"a": 1, "a": 2}': "limits has a key more than once",
    '"weight": 1, "stops": {"Berlin": {"due": "2026-01-31"}}': "stops['Berlin'].km is missing",
    '"weight": 1, "address": {"zip": 1, "zip": "x"}': "address.zip is no bigint: x",
}


def test_what_does_not_fit_is_named_by_its_path(spark: SparkSession) -> None:
    sent = {f'{{"id": 1, {fields}}}': reason for fields, reason in BROKEN.items()}
    assert reasons(spark, PARCELS, list(sent)) == sent


@pytest.mark.parametrize("seed", [1, 2])
def test_json_is_taken_as_python_takes_it(spark: SparkSession, seed: int) -> None:
    sent = list(payloads(seed, 400, broken=0.04))
    wrong = []
    for payload, (values, reason) in zip(sent, decoded(spark, PARCELS, [each.encode() for each in sent]), strict=True):
        expected, paths = read(payload)
        named = PATH.findall(reason or "")
        is_true = bool(named) and all(any(path.startswith(each) for path in paths) for each in named)
        if not (is_true if reason else not paths and values == expected):
            wrong.append((payload, reason, paths))
    assert wrong == []
    assert 100 < sum(1 for payload in sent if read(payload)[1]) < 300


def in_avro(schema: Any, values: dict[str, Any]) -> bytes:
    with io.BytesIO() as payload:
        fastavro.schemaless_writer(payload, schema, values)
        return payload.getvalue()


def topic_in_avro(*schemas: Any, ddl: str = DDL) -> Topic:
    return Topic("parcels", ddl, encoding=Encoding.AVRO, schemas=registered(*schemas))


def registered(*schemas: Any) -> tuple[RegisteredSchema, ...]:
    return tuple(
        RegisteredSchema(version=version, type="AVRO", data=json.dumps(each)) for version, each in enumerate(schemas)
    )


def test_avro_has_the_values_that_were_written(spark: SparkSession) -> None:
    schema = json.loads(topic_in_avro().pulsar_schema())
    expected = [read(payload)[0] for payload in payloads(3, 100, broken=0)]
    as_text = [each | {"arrived": each["arrived"] and each["arrived"].isoformat()} for each in expected]
    found = decoded(spark, topic_in_avro(schema), [in_avro(schema, each) for each in as_text])
    assert found == [(each, None) for each in expected]


def written(**fields: Any) -> dict[str, Any]:
    return {"type": "record", "name": "P", "fields": [{"name": name, "type": kind} for name, kind in fields.items()]}


STATE = {"type": "enum", "name": "State", "namespace": "there", "symbols": ["NEW", "SENT", "GONE"]}
MONEY = {"type": "fixed", "name": "Money", "size": 9, "logicalType": "decimal", "precision": 9, "scale": 4}
CENTS = {"type": "bytes", "logicalType": "decimal", "precision": 6, "scale": 2}
DAY = {"type": "int", "logicalType": "date"}
MICROS = {"type": "long", "logicalType": "timestamp-micros"}
AMOUNTS = {"type": "array", "items": MONEY}
TEXTS, BINARIES = {"type": "map", "values": "string"}, {"type": "map", "values": "bytes"}
ADDRESS = written(zip=["null", "long"]) | {"name": "Address"}
SHORT = """
    id BIGINT, state ENUM('NEW', 'SENT'), weight DECIMAL(6, 2), due DATE, sent TIMESTAMP_MILLIS,
    address STRUCT<zip: BIGINT NOT NULL, state: STRING>, weights ARRAY<DECIMAL(6, 2)>, limits MAP<STRING, STRING>
"""


def test_avro_is_read_with_the_types_that_it_was_written_with(spark: SparkSession) -> None:
    address = written(zip="int", state="there.State") | {"name": "Address"}
    schema = written(state=STATE, weight=MONEY, address=["null", address], weights={"type": "array", "items": "Money"})
    values = {"state": "SENT", "weight": Decimal("1.5"), "address": {"zip": 7, "state": "NEW"}, "weights": [Decimal(2)]}
    [(found, reason)] = decoded(spark, topic_in_avro(schema, ddl=SHORT), [in_avro(schema, values)])
    assert reason is None
    assert {name: value for name, value in found.items() if value is not None} == {
        **{"state": "SENT", "weight": Decimal("1.50"), "address": {"zip": 7, "state": "NEW"}},
        "weights": [Decimal("2.00")],
    }


@pytest.mark.parametrize(
    ("field", "kind", "written_as", "value", "reason"),
    [
        ("state", STATE, STATE, "GONE", "state is none of NEW, SENT: GONE"),
        ("state", "string", "string", "new", "state is none of NEW, SENT: new"),
        ("weight", MONEY, MONEY, Decimal("1.0050"), "weight is no decimal(6,2): 1.0050"),
        ("weight", CENTS, "bytes", b"\x0f\x42\x40", "weight is no decimal(6,2): 10000.00"),
        ("weight", CENTS, "bytes", b"\x01" + b"\0" * 8, "weight is no decimal(6,2): 184467440737095516.16"),
        ("weight", CENTS, "bytes", b"\x7f" * 8, "weight is no decimal(6,2): 91872019504357374.71"),
        ("due", DAY, "int", 2_932_897, "due is out of range: 2932897"),
        ("sent", "long", "long", 2**62, f"sent is out of range: {2**62}"),
        ("sent", MICROS, "long", 1001, "sent is no timestamp_millis: 1001"),
        ("address", ADDRESS, ADDRESS, {"zip": None}, "address.zip is missing"),
        ("weights", AMOUNTS, AMOUNTS, [Decimal(1), Decimal(99999)], "weights[1] is no decimal(6,2): 99999.0000"),
        ("limits", TEXTS, BINARIES, {"a": b"\xff"}, "limits['a'] is not UTF-8 at byte 0"),
    ],
)
def test_what_does_not_fit_in_avro_is_named_by_its_path(
    spark: SparkSession, field: str, kind: Any, written_as: Any, value: Any, reason: str
) -> None:
    payload = in_avro(written(**{field: written_as}), {field: value})
    [(_, found)] = decoded(spark, topic_in_avro(written(**{field: kind}), ddl=SHORT), [payload])
    assert found == reason
