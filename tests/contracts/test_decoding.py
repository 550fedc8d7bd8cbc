import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from pulsar_lakehouse import function
from pulsar_lakehouse.bronze.landing import bronze_table
from pulsar_lakehouse.contracts.decoding import ENCRYPTION, MALFORMED, Decoding, decode, explain
from pulsar_lakehouse.contracts.malformed import quarantine_malformed
from pulsar_lakehouse.contracts.topics import Topic
from pulsar_lakehouse.settings import Settings
from pulsar_lakehouse.spark.functions import declare
from pulsar_lakehouse.tables.lake import Lake
from tests.lake import bronze_row, own_home, read
from tests.messages import message

COUNTERS = Topic("counters", "id BIGINT NOT NULL, at BIGINT, label STRING, price DOUBLE NOT NULL")
COUNTED = Decoding(
    topic=COUNTERS,
    columns={"id": "id", "at": "at", "label": "upper(label)", "price": "price"},
)
NOT_NEGATIVE = "CASE WHEN price < 0 THEN 'price is negative' END"

GOOD = {
    b'{"id": 1, "at": 2, "label": "a", "price": 2.5}': (1, 2, "A", 2.5),
    b'{"id": 1, "price": 2}': (1, None, None, 2.0),
    b'{"id": 1, "at": null, "label": null, "price": 2}': (1, None, None, 2.0),
    b'{"id": 1, "price": 2, "new": {"more": [1, "}"]}}': (1, None, None, 2.0),
    b' \t{"price": 2, "id": 1}\r\n ': (1, None, None, 2.0),
    '{"id": 1, "label": "zoë } {", "price": 2}'.encode(): (1, None, "ZOË } {", 2.0),
    None: (None, None, None, None),
    b"": (None, None, None, None),
}
BROKEN = {
    b'{"id": "1", "price": 2}': "id is no bigint: 1",
    b'{"id": 1.0, "price": 2}': "id is no bigint: 1.0",
    b'{"id": true, "price": 2}': "id is no bigint: true",
    b'{"id": 9223372036854775808, "price": 2}': "id is no bigint: 9223372036854775808",
    b'{"id": 1, "at": "yesterday", "price": 2}': "at is no bigint: yesterday",
    b'{"id": 1, "price": "NaN"}': "price is no double: NaN",
    b'{"id": null, "price": 2}': "id is missing",
    b'{"id": 1, "price": 2, "price": null}': "price is missing",
    b'{"id": "1", "price": "x", "id": 1, "price": 2}': "id is no bigint each time; price is no double each time",
    b'{"ID": 1, "at": {}}': "id is missing; at is no bigint: {}; price is missing",
    b"{}": "id is missing; price is missing",
    b"null": "not a JSON object",
    b"[]": "not a JSON object",
    b'[{"id": 1, "price": 2}]': "not a JSON object",
    b'[{"id": 1, "price": 2}': "not a JSON object",
    b"12": "not a JSON object",
    b'{"id": 1, "pri': "not a JSON object",
    b'{"id": 1, "price": 2': "not a JSON object",
    b"{'id': 1, 'price': 2}": "not a JSON object",
    b'{"id": 1, "price": NaN}': "not a JSON object",
    b'x{"id": 1, "price": 2}': "not a JSON object",
    b"\xff\xfe\x00": "not UTF-8 at byte 0",
    b'{"id": 1, "price": -2}': "price is negative",
}
TRAILING = (
    b'{"id": 1, "price": 2} {"id": 2, "price": 2}',
    b'{"id": 1, "price": 2}\n{"id": 2, "price": 2}\n',
    b'{"id": 1, "price": 2}}',
    b'{"id": 1, "price": 2},{"id": 2, "price": 2}',
    b'{"id": 1, "price": 2}],[{"id": 2, "price": 2}',
    b'{"id": 1, "price": 2, "more": {}} {}',
    b'{"id": 1, "price": 2} and more }',
    b'{"id": 1, "price": 2} and more',
)


def decoded(spark: SparkSession, payloads: list[bytes | None]) -> DataFrame:
    rows = [bronze_row(message("counters", payload, key="k", place=place)) for place, payload in enumerate(payloads)]
    messages = spark.createDataFrame(rows, bronze_table(COUNTERS).ddl)
    return messages.transform(decode, decoding=COUNTED, reject=F.expr(NOT_NEGATIVE))


def reasons(spark: SparkSession, payloads: list[bytes | None]) -> list[str | None]:
    rows = decoded(spark, payloads).transform(explain, decoding=COUNTED).orderBy("message.position")
    return [row.reason for row in rows.collect()]


def test_payloads_that_keep_the_contract(spark: SparkSession) -> None:
    rows = decoded(spark, list(GOOD)).orderBy("message.position").collect()
    assert [(row.id, row.at, row.label, row.price) for row in rows] == list(GOOD.values())
    assert {row.reason for row in rows} == {None}


def test_payloads_that_break_it_and_why(spark: SparkSession) -> None:
    assert dict(zip(BROKEN, reasons(spark, list(BROKEN)), strict=True)) == BROKEN


def test_a_field_can_be_named_like_the_reason(spark: SparkSession) -> None:
    topic = Topic("refunds", "id BIGINT NOT NULL, reason STRING")
    decoding = Decoding(topic=topic, columns={"id": "id", "days": "CAST(reason AS INT)"})
    payloads = [b'{"reason": "3"}', b'{"id": 1, "reason": "late"}']
    rows = [bronze_row(message("refunds", payload, key="k", place=place)) for place, payload in enumerate(payloads)]
    messages = spark.createDataFrame(rows, bronze_table(topic).ddl)
    found = messages.transform(decode, decoding=decoding, reject=F.lit(None).cast("string"))
    why = found.transform(explain, decoding=decoding).orderBy("message.position").collect()
    fails = "days: CAST(reason AS INT) gives no int with reason = late"
    assert [row.reason for row in why] == ["id is missing", fails]


def test_what_follows_the_object_is_not_lost(spark: SparkSession) -> None:
    assert reasons(spark, list(TRAILING)) == ["more after the JSON object"] * len(TRAILING)


def test_a_message_keeps_its_payload_only_if_it_is_rejected(spark: SparkSession) -> None:
    rows = decoded(spark, [b'{"id": 1, "price": 2}', b"{}", None]).orderBy("message.position").collect()
    assert [(row.message.payload, row.message.is_tombstone) for row in rows] == [
        (None, False),
        (bytearray(b"{}"), False),
        (None, True),
    ]


def test_a_message_that_landed_encrypted_says_with_which_key(spark: SparkSession) -> None:
    """Even one without a payload, as most of an encrypted batch; but not one whose producer wrote the property."""
    marks = ['{"parts": [{"keys": {"b": "", "a": ""}}]}', "what is this?"]
    rows = [
        (*row[:7], {ENCRYPTION: mark}, *row[8:])
        for mark in marks
        for row in [bronze_row(message("counters", b"", key="k"))]
    ]
    messages = spark.createDataFrame(rows, bronze_table(COUNTERS).ddl)
    found = messages.transform(decode, decoding=COUNTED, reject=F.lit(None).cast("string")).collect()
    assert [(row.reason, row.message.is_tombstone) for row in found] == [
        ("encrypted with key a, b", False),
        (None, True),
    ]


def test_what_sql_makes_of_literals_is_null_for_malformed_messages(spark: SparkSession) -> None:
    decoding = Decoding(topic=COUNTERS, columns={"made": "named_struct('ids', array(1, 2))"})
    rows = [bronze_row(message("counters", b"{}", key="k"))]
    messages = spark.createDataFrame(rows, bronze_table(COUNTERS).ddl)
    decoded = messages.transform(decode, decoding=decoding, reject=F.lit(None).cast("string"))
    assert decoded.select("made").toArrow().to_pylist() == [{"made": None}]


@pytest.fixture
def quarantine(lake: Lake, tmp_path: Path) -> Settings:
    own = own_home(lake.settings, tmp_path)
    Lake(lake.spark, own).create(MALFORMED)
    return own


def test_the_quarantine_holds_each_message_once(spark: SparkSession, quarantine: Settings) -> None:
    rejected = decoded(spark, [b"{}", b"null"])
    for _ in range(2):
        quarantine_malformed(Lake(spark, quarantine), COUNTED, rejected)
    held = sorted((row["position"]["entry_id"], row) for row in read(quarantine, MALFORMED.name))
    assert [(row["topic"], row["key"], row["payload"], row["reason"]) for _, row in held] == [
        ("counters", "k", b"{}", "id is missing; price is missing"),
        ("counters", "k", b"null", "not a JSON object"),
    ]


@function("text STRING", returns="STRING", timeout="1 second")
def labelled(text: pa.StringArray) -> pa.Array:
    """Raises an error for `bad`, and for NULL. For `endless`, it never returns."""
    while pc.any(pc.equal(text, "endless")).as_py():
        time.sleep(60)
    if text.null_count or pc.any(pc.equal(text, "bad")).as_py():
        raise ValueError("no label")
    return pc.binary_join_element_wise("label", text, " ")


@pytest.fixture
def functions(spark: SparkSession) -> Iterator[None]:
    declare([labelled])
    yield
    declare([])


@pytest.mark.usefixtures("functions")
def test_a_function_fails_for_a_message_whose_column_uses_its_value(spark: SparkSession) -> None:
    """What fails in its arguments is told as elsewhere, and a tombstone has no fields to fail on."""
    columns = {
        "day": "labelled(CAST(to_date(label) AS STRING))",
        "again": "upper(labelled(labelled(CAST(to_date(label) AS STRING))))",
        "known": "CASE WHEN at > 0 THEN Labelled(elt(at, 'good', 'bad', 'endless')) END",
    }
    payloads = [
        b'{"id": 1, "price": 2, "label": "2026-01-02"}',
        b'{"id": 1, "price": 2, "label": "soon"}',
        b'{"id": 1, "price": 2}',
        b'{"id": 1, "price": 2, "label": "2026-01-02", "at": 1}',
        b'{"id": 1, "price": 2, "label": "2026-01-02", "at": 2}',
        b'{"id": 1, "price": 2, "label": "2026-01-02", "at": 3}',
        b'{"id": "x", "price": 2, "label": "2026-01-02", "at": 2}',
        None,
    ]
    decoding = Decoding(topic=COUNTERS, columns=columns)
    rows = [bronze_row(message("counters", payload, key="k", place=place)) for place, payload in enumerate(payloads)]
    messages = spark.createDataFrame(rows, bronze_table(COUNTERS).ddl)
    decoded = messages.transform(decode, decoding=decoding, reject=F.lit(None).cast("string"))
    found = decoded.orderBy("message.position").select(*columns).collect()
    good = ("label 2026-01-02", "LABEL LABEL 2026-01-02")
    nothing = (None, None, None)
    assert [tuple(row) for row in found] == [
        *((*good, None), nothing, nothing, (*good, "label good")),
        *(nothing, nothing, nothing, nothing),
    ]
    why = decoded.transform(explain, decoding=decoding).orderBy("message.position").collect()
    day, again, _ = (f"{name}: {sql} gives no string with label = soon" for name, sql in columns.items())
    failed = "function labelled: ValueError: no label"
    assert [row.reason for row in why] == [
        *(None, f"{day}; {again}", failed, None, failed),
        *("function labelled: took longer than 1 s", "id is no bigint: x", None),
    ]
