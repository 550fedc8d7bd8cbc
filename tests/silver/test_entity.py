"""What an entity's declaration says of its tables."""

from dataclasses import replace

from pyspark.sql import SparkSession

from declarations.users import USERS

COUNTED = replace(
    USERS,
    columns={"id": "id", "name": "upper(firstName)", "age": "CAST(parentUserId AS INT)", "at": "message.event_time"},
)


def test_the_name_of_a_table_needs_no_spark() -> None:
    assert (USERS.table.name, USERS.history.name) == ("silver.users", "silver.users_history")


def test_the_types_of_columns_are_those_of_their_sql(spark: SparkSession) -> None:
    assert COUNTED.decoding.ddl == "`id` bigint, `name` string, `age` int, `at` timestamp, `deleted_at` timestamp"
