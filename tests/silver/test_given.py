"""What a message gives, and what a version has of its own."""

from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from pulsar_lakehouse.contracts.topics import Topic
from pulsar_lakehouse.silver.entity import Entity
from pulsar_lakehouse.silver.given import given_by, values_of

STORES = Entity(
    topic=Topic("stores", "id BIGINT, city STRING, note STRING, home STRUCT<zip: INT, `a.b`: INT>, tags ARRAY<STRING>"),
    key="id",
    columns="id, city, note, home, tags",
    ignore_null_updates=("city", "home", "tags"),
)
COLUMNS = "id BIGINT, city STRING, note STRING, home STRUCT<zip: INT, `a.b`: INT>, tags ARRAY<STRING>"


def test_what_ignores_null_is_given_if_it_is_not_null(spark: SparkSession) -> None:
    rows: list[tuple[Any, ...]] = [
        (1, None, None, None, None),
        (2, "Rome", "old", (1, None), []),
        (3, None, None, (None, 2), None),
    ]
    given = spark.createDataFrame(rows, COLUMNS).select("id", given_by(STORES).alias("given"))
    assert {row.id: row.given for row in given.collect()} == {
        1: ["note"],
        2: ["city", "note", "home.zip", "tags"],
        3: ["note", "home.`a.b`"],
    }


def test_what_is_given_as_null_is_a_value_also_of_a_struct_that_was_given_as_a_whole(spark: SparkSession) -> None:
    row = (1, "Rome", None, (None, 2), None)
    version = spark.createDataFrame([row], COLUMNS).withColumn("given", F.array(F.lit("note"), F.lit("home")))
    [own] = version.select(*(each.own.alias(each.name) for each in values_of(STORES))).collect()
    assert own.asDict(recursive=True) == {
        "city": None,
        "note": {"value": None},
        "home.zip": {"value": None},
        "home.`a.b`": {"value": 2},
        "tags": None,
    }
