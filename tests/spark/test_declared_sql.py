"""Declared SQL that fails on some messages: they are rejected with the reason, and stop nothing."""

from dataclasses import replace
from datetime import datetime
from decimal import Decimal
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from pulsar_lakehouse.bronze.landing import bronze_table
from pulsar_lakehouse.contracts.checks import quarantine
from pulsar_lakehouse.contracts.decoding import Decoding, explain
from pulsar_lakehouse.contracts.topics import Topic
from pulsar_lakehouse.errors import ConfigurationError
from pulsar_lakehouse.gold.enrichment.declaration import Enrichment
from pulsar_lakehouse.gold.enrichment.facts import decode_facts
from pulsar_lakehouse.silver.entity import Entity
from pulsar_lakehouse.silver.merge import decode_changes
from pulsar_lakehouse.spark.declared_sql import try_eval
from tests.lake import bronze_row
from tests.messages import message

TOPIC = Topic("parts", "id BIGINT NOT NULL, amount STRING, count BIGINT")
PARTS = Entity(
    topic=TOPIC,
    key="id",
    columns={
        "id": "id",
        "amount": "CAST(amount AS DECIMAL(18,2))",
        "count": "CAST(count AS INT)",
        "each": "100 DIV Count",
    },
    deleted_at="CASE WHEN id = 7 THEN CAST(amount || 'x' AS TIMESTAMP) END",
)
SALES = Enrichment(
    topic=TOPIC,
    columns={"id": "id", "amount": "amount", "count": "count", "at": "timestamp_seconds(id)"},
    keys=("id",),
    event_time="at",
    day="day",
    lookups=(),
    checks={"is_dear": quarantine("100 / count > 2"), "is_round": quarantine("100 / count % 1 = 0")},
)

NOW = datetime(2026, 1, 1)
NO_AMOUNT = "amount: CAST(amount AS DECIMAL(18,2)) gives no decimal(18,2) with amount = abc"
NO_TIME = (
    "deleted_at: CAST(CASE WHEN id = 7 THEN CAST(amount || 'x' AS TIMESTAMP) END AS TIMESTAMP) gives no timestamp "
    "with id = 7, amount = "
)
CHANGES: dict[bytes | None, Any] = {
    b'{"id": 1, "amount": "2.5", "count": 2}': (1, Decimal("2.50"), 2, 50, None),
    b'{"id": 2}': (2, None, None, None, None),
    None: (3, None, None, None, NOW),
    b'{"id": 4, "amount": "abc", "count": 2}': NO_AMOUNT,
    b'{"id": 5, "amount": "abc", "count": 0}': f"{NO_AMOUNT}; each: 100 DIV Count gives no bigint with count = 0",
    b'{"id": 6, "count": 5000000000}': "count: CAST(count AS INT) gives no int with count = 5000000000",
    b'{"id": 7, "amount": "abc"}': f"{NO_AMOUNT}; {NO_TIME}abc",
    b'{"id": 7, "amount": "1' + b"0" * 200 + b'"}': (f"{NO_AMOUNT[:-3]}1{'0' * 99}…; {NO_TIME}1{'0' * 99}…"),
    b'{"amount": "abc"}': "id is missing",
}
FACTS: dict[bytes | None, Any] = {
    b'{"id": 1, "amount": "2.5", "count": 2}': (1, "2.5", 2, datetime(1970, 1, 1, 0, 0, 1)),
    b'{"id": 1, "count": 0}': "fails is_dear, is_round",
    b'{"id": 1, "count": 80}': "fails is_dear, is_round",
    b'{"id": 9223372036854775807}': "at: timestamp_seconds(id) gives no timestamp with id = 9223372036854775807",
}


def bronze(spark: SparkSession, payloads: list[bytes | None]) -> DataFrame:
    rows = [bronze_row(message("parts", each, key=None if each else "3", place=at)) for at, each in enumerate(payloads)]
    return spark.createDataFrame(rows, bronze_table(TOPIC).ddl)


@pytest.fixture(params=["interpreted", "generated"])
def either_way(request: pytest.FixtureRequest) -> None:
    """Interpreted plans, as in tests and the demo, and generated code, as in users' runs."""
    if request.param == "generated":
        request.getfixturevalue("generated_code")


def found(decoded: DataFrame, decoding: Decoding) -> list[Any]:
    """The reason why each message is rejected, or its columns."""
    rows = decoded.orderBy("message.position").select(*decoding.columns).collect()
    explained = decoded.transform(explain, decoding=decoding).orderBy("message.position").collect()
    return [told.reason or tuple(row) for row, told in zip(rows, explained, strict=True)]


@pytest.mark.usefixtures("either_way")
def test_a_change_on_which_a_column_fails_is_rejected_with_its_name(spark: SparkSession) -> None:
    decoded = bronze(spark, list(CHANGES)).transform(decode_changes, entity=PARTS)
    assert dict(zip(CHANGES, found(decoded, PARTS.decoding), strict=True)) == CHANGES


@pytest.mark.usefixtures("either_way")
def test_a_check_that_ends_in_an_error_is_failed(spark: SparkSession) -> None:
    decoded = bronze(spark, list(FACTS)).transform(decode_facts, enrichment=SALES)
    assert dict(zip(FACTS, found(decoded, SALES.decoding), strict=True)) == FACTS


@pytest.mark.parametrize(
    ("columns", "line"),
    [
        ({"id": "id", "amount": "amuont"}, r"^parts: amount: amuont: \[UNRESOLVED_COLUMN.* `amuont`"),
        ({"id": "id", "amount": "CAST(amount AS"}, r"^parts: amount: CAST\(amount AS: \[PARSE_SYNTAX_ERROR\]"),
        ({"id": "id", "count": "sum(count)"}, r"^parts: count: sum\(count\): \[\w+"),
        ({"id": "id", "count": "NULL"}, r"^parts: count: NULL: is of type void, which no table can have: CAST it"),
        ({"id": "id", "count": "ARRAY(NULL)"}, r"^parts: count: ARRAY\(NULL\): is of type array<void>, which no table"),
    ],
)
def test_sql_that_can_not_be_resolved_is_named(spark: SparkSession, columns: dict[str, str], line: str) -> None:
    with pytest.raises(ConfigurationError, match=line):
        bronze(spark, [None]).transform(decode_changes, entity=replace(PARTS, columns=columns))


@pytest.mark.parametrize(
    ("sql", "reason"),
    [
        ("price > 0", r": \[UNRESOLVED_COLUMN.* `price`"),
        ("count", r" is \w+: must be a condition, which is TRUE or not"),
    ],
)
def test_a_check_that_is_no_condition_is_named(spark: SparkSession, sql: str, reason: str) -> None:
    with pytest.raises(ConfigurationError, match=rf"^parts: check is_dear: {sql}{reason}"):
        bronze(spark, [None]).transform(decode_facts, enrichment=replace(SALES, checks={"is_dear": quarantine(sql)}))


@pytest.mark.usefixtures("either_way")
def test_what_several_expressions_share_is_tried_too(spark: SparkSession) -> None:
    """Spark evaluates a shared subexpression before these expressions, unless they are in a branch."""
    rows = spark.createDataFrame([("1",), ("x",), (None,)], "text STRING")
    numbers = F.struct(F.expr("CAST(text AS INT) + 1").alias("a"), F.expr("CAST(text AS INT) + 2").alias("b"))
    tried = rows.select("text", F.when(F.col("text").isNotNull(), try_eval(numbers)).alias("numbers"))
    assert [row.numbers and tuple(row.numbers) for row in tried.collect()] == [(2, 3), None, None]
