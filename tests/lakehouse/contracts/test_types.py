"""Fields of all types: what each takes is what plain Python says, and reasons name the values that do not fit."""

import re
from collections.abc import Sequence
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from bronze.landing import bronze_table
from lakehouse.contracts.decoding import Decoding, decode, explain
from lakehouse.contracts.topics import Topic
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
    values = found.orderBy("message.position").drop("message", "reason").collect()
    reasons = found.transform(explain, decoding=decoding).orderBy("message.position").collect()
    return [(row.asDict(recursive=True), told.reason) for row, told in zip(values, reasons, strict=True)]


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
        "sent": datetime(2026, 1, 1, 0, 0, 0, 123_000),
        "seen": datetime(2026, 1, 1, 0, 0, 0, 123_456),
        "arrived": datetime(2026, 1, 1, 0, 0, 0, 500_000),
        "due": date(2026, 1, 31),
        "state": "SENT",
        "address": {"zip": 10115, "city": None, "geo": {"lat": 52.5, "at": datetime(1970, 1, 1)}},
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
    '"weight": 1, "address": {"zip": 1, "geo": {"lat": 1e400}}': "address.geo.lat is out of range: Infinity",
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
    '"weight": 1, "address": {"zip": 1, "zip": "x"}': "address is no struct each time",
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
        if reason is None:
            agrees = not paths and values == expected
        else:
            named = PATH.findall(reason)
            agrees = bool(named) and all(any(path.startswith(each) for path in paths) for each in named)
        if not agrees:
            wrong.append((payload, reason, paths))
    assert wrong == []
    assert 100 < sum(1 for payload in sent if read(payload)[1]) < 300
