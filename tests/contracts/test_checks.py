"""What a check says of a row, and what stops a step."""

import pytest
from pyspark.sql import SparkSession

from pulsar_lakehouse.contracts.checks import fail, failed, quarantine, stop_if_failed, warn
from pulsar_lakehouse.errors import PermanentError

COLUMNS = "id INT, price INT, weight INT"
ROWS = [(1, 1, 5), (2, -1, 5), (3, -1, None), (4, None, 0)]


def test_a_check_that_is_not_true_of_a_row_is_named(spark: SparkSession) -> None:
    rows = spark.createDataFrame(ROWS, COLUMNS)
    checks = {
        "price_is_positive": warn("price > 0"),
        "weight_is_known": warn("weight IS NOT NULL"),
        "is_dense": warn("price / weight > 0"),
    }
    assert [row[0] for row in rows.select(failed(checks, given="TRUE")).collect()] == [
        "",
        "price_is_positive, is_dense",
        "price_is_positive, weight_is_known, is_dense",
        "price_is_positive, is_dense",
    ]


def test_only_a_check_whose_mode_is_fail_stops_and_says_why(spark: SparkSession) -> None:
    rows = spark.createDataFrame(ROWS, COLUMNS)
    others = {"price_is_positive": warn("price > 0"), "weight_is_known": quarantine("weight IS NOT NULL")}
    stop_if_failed(rows, others, table="silver.parts", keys=["id"])
    checks = {**others, "price_is_known": fail("price IS NOT NULL"), "is_dense": fail("price / weight > 0")}
    with pytest.raises(PermanentError) as error:
        stop_if_failed(rows, checks, table="silver.parts", keys=["id"])
    assert str(error.value) == (
        'silver.parts: rows fail a check whose mode is fail: 2 with is_dense, such as {"id":2}; '
        '1 with price_is_known, is_dense, such as {"id":4}: nothing is written until the rows are corrected, or the '
        "check is changed"
    )


@pytest.mark.parametrize(
    ("sql", "columns"),
    [
        ("user.id > 0 OR Price IS NULL", {"user", "price"}),
        ("exists(tags, tag -> tag = `kind`)", {"tags", "kind"}),
    ],
)
def test_the_columns_of_a_check_are_those_that_its_sql_names(sql: str, columns: set[str]) -> None:
    assert warn(sql).columns == columns
