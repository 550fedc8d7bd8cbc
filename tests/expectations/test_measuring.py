import pytest
from pyspark.sql import SparkSession

from pulsar_lakehouse.expectations.measuring import OfRows, measure_rows
from pulsar_lakehouse.expectations.suites import Rule, each_row, unique


@pytest.mark.parametrize(
    ("rule", "observed"),
    [
        (each_row("is_nobody", "email IS NULL"), '2 of 2 rows, such as {"id":1}'),
        (each_row("is_nobody", "user.email IS NULL AND email IS NULL"), '2 of 2 rows, such as {"id":1}'),
        (unique("id", "email"), '1 of 2 rows, such as {"id":1}'),
        (unique("email"), "1 of 2 rows"),
    ],
)
def test_an_example_has_no_personal_data(spark: SparkSession, rule: Rule, observed: str) -> None:
    row = (1, "ada@example.com", ("ada@example.com",))
    rows = spark.createDataFrame([row, row], "id BIGINT, email STRING, user STRUCT<email: STRING>")
    asked = OfRows(
        table="silver.users", rule=rule, rows=rows, key=("id",), personal=("email", "user.email"), figures={}
    )
    assert [each.observed for each in measure_rows([asked])] == [observed]
