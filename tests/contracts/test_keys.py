"""The text of keys: of one value it is the value's, of several a JSON array."""

from datetime import date
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from pulsar_lakehouse.contracts.keys import key_text, key_values


@pytest.mark.parametrize(
    ("values", "types", "text"),
    [
        ((7,), "a BIGINT", "7"),
        (("A1",), "a STRING", "A1"),
        (("A1", "EUR"), "a STRING, b STRING", '["A1","EUR"]'),
        ((7, "", True), "a INT, b STRING, c BOOLEAN", '[7,"",true]'),
        (('"Zoë"\n]', date(2026, 1, 31)), "a STRING, b DATE", r'["\"Zoë\"\n]","2026-01-31"]'),
        ((7, None), "a INT, b STRING", None),
    ],
)
def test_a_key_has_one_text(spark: SparkSession, values: tuple[Any, ...], types: str, text: str | None) -> None:
    keys = spark.createDataFrame([values], types)
    texts = keys.select(key_text([F.col(name) for name in keys.columns]).alias("text"))
    assert [row.text for row in texts.collect()] == [text]
    kinds = [column.dataType for column in keys.schema]
    [found] = texts.select(*key_values(F.col("text"), kinds)).collect()
    assert tuple(found) == (values if text else (None,) * len(values))


@pytest.mark.parametrize("text", ['["7","EUR"]', '[7, "EUR"]', '[7,"EUR"', '[7,"EUR",1]', '[7.0,"EUR"]', "7", "", None])
def test_another_text_is_no_key(spark: SparkSession, text: str | None) -> None:
    texts = spark.createDataFrame([(text,)], "text STRING")
    kinds = [column.dataType for column in spark.createDataFrame([], "a INT, b STRING").schema]
    assert [tuple(row) for row in texts.select(*key_values(F.col("text"), kinds)).collect()] == [(None, None)]
