"""What an entity's declaration says of its tables."""

from dataclasses import replace

import pytest
from pyspark.sql import SparkSession

from pulsar_lakehouse.domains.shop.declarations.users import USERS
from pulsar_lakehouse.errors import ConfigurationError

COUNTED = replace(
    USERS,
    columns={"id": "id", "name": "upper(firstName)", "age": "CAST(parentUserId AS INT)", "at": "message.event_time"},
)


def test_the_name_of_a_table_needs_no_spark() -> None:
    assert (USERS.table.name, USERS.history.name) == ("silver.users", "silver.users_history")


def test_the_types_of_columns_are_those_of_their_sql(spark: SparkSession) -> None:
    assert COUNTED.decoding.ddl == "`id` bigint, `name` string, `age` int, `at` timestamp, `deleted_at` timestamp"


def test_a_key_is_a_column() -> None:
    with pytest.raises(ConfigurationError, match=r"^users: key uid: must be one of id, name, age, at$"):
        replace(COUNTED, key="uid")


def test_silver_has_columns_of_its_own() -> None:
    with pytest.raises(ConfigurationError, match=r"^users: column sequence: silver has one of that name"):
        replace(USERS, columns="id, createdAt AS sequence")


def test_a_sequence_is_by_columns() -> None:
    with pytest.raises(ConfigurationError, match=r"^users: sequence_by version: must be one of id, name, age, at$"):
        replace(COUNTED, sequence_by="version")


def test_a_sequence_is_by_what_can_be_ordered(spark: SparkSession) -> None:
    pairs = replace(USERS, columns="id, map(id, id) AS pair", sequence_by=("id", "pair"))
    line = r"^users: sequence_by pair is map<bigint,bigint>: must be a number, a text or a time$"
    with pytest.raises(ConfigurationError, match=line):
        pairs.table.ddl  # noqa: B018


@pytest.mark.parametrize("key", [(), ("id", "id")])
def test_a_key_is_columns_once_each(key: tuple[str, ...]) -> None:
    with pytest.raises(ConfigurationError, match=r"^users: key \(.*\): must be one or more columns, each once$"):
        replace(COUNTED, key=key)


def test_a_key_of_several_columns_is_of_what_a_message_key_can_say(spark: SparkSession) -> None:
    line = r"^users: key at is timestamp: must be a text, an integer, a boolean or a date$"
    with pytest.raises(ConfigurationError, match=line):
        replace(COUNTED, key=("id", "at")).table.ddl  # noqa: B018
