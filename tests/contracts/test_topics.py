import re
from typing import Any

import pytest
from pyspark.sql.types import (
    ArrayType,
    DataType,
    FloatType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
)

from pulsar_lakehouse.contracts.envelopes import Debezium
from pulsar_lakehouse.contracts.topics import Topic, is_by_message
from pulsar_lakehouse.contracts.types import NAMES, Enum
from pulsar_lakehouse.errors import ConfigurationError


def test_fields_are_ddl_or_a_struct() -> None:
    fields = StructType([StructField("id", LongType(), nullable=False), StructField("city", StringType())])
    assert Topic("stores", "id BIGINT NOT NULL, city STRING").fields == Topic("stores", fields).fields == fields


@pytest.mark.parametrize(("name", "record"), [("stores", "Stores"), ("opening_hours", "OpeningHours"), ("a-b", "AB")])
def test_a_record_is_named_after_its_topic(name: str, record: str) -> None:
    assert Topic(name, "id BIGINT").record == record


def test_wrong_ddl_is_one_line_that_names_the_topic() -> None:
    with pytest.raises(
        ConfigurationError,
        match=r"^topic stores: field city is STRING with `NOT` after it: must be STRING, or STRING NOT NULL$",
    ):
        Topic("stores", "id BIGINT, city STRING NOT")


def test_no_field_takes_the_name_of_the_message() -> None:
    with pytest.raises(ConfigurationError, match=r"^topic posts: field Message: SQL has the message itself under"):
        Topic("posts", "Message STRING")


@pytest.mark.parametrize(
    ("kind", "line"),
    [
        (FloatType(), f"field a is float: must be one of {NAMES}"),
        (StructType(), "field a has no fields"),
        (ArrayType(StructType([StructField("b", FloatType())])), f"field a[].b is float: must be one of {NAMES}"),
        (MapType(LongType(), StringType()), f"field a is map<bigint,string>: must be one of {NAMES}"),
        (
            StructType([StructField("b", StringType()), StructField("B", StringType())]),
            "field a has b twice, as SQL does not tell upper from lower case",
        ),
        (Enum("A", "A"), "field a is an ENUM of 'A', 'A': must be texts, each once"),
    ],
)
def test_other_types_are_refused(kind: DataType, line: str) -> None:
    with pytest.raises(ConfigurationError, match=f"^topic posts: {re.escape(line)}$"):
        Topic("posts", StructType([StructField("a", kind)]))


@pytest.mark.parametrize(
    ("sql", "is_by"),
    [
        ("message.properties['type'] = 'refund'", True),
        ("message.properties['type'] = type", False),
        ("startswith(message.key, 'refund-') AND message.publish_time > '2026-01-01'", True),
        ("type = 'refund'", False),
        ("true", True),
    ],
)
def test_some_kinds_are_told_without_fields(sql: str, is_by: bool) -> None:
    assert is_by_message(sql) == is_by


def test_kinds_of_a_topic_land_in_one_table() -> None:
    name = "persistent://sales/eu/Shop-Events"
    orders, refunds = (Topic(kind, "id BIGINT", topic=name, where=kind) for kind in ("orders", "refunds"))
    assert orders.bronze_table == refunds.bronze_table == "bronze.shop_events"
    assert orders.landing == Topic("shop_events", "id BIGINT", topic=name, where="orders", record="Orders")


def test_the_first_kind_that_needs_fields_has_what_can_not_be_read() -> None:
    kinds = (("news", "message.key = 'news'"), ("orders", "kind = 'order'"), ("refunds", "kind = 'refund'"))
    firsts = (Topic(name, "kind STRING", topic="events", where=sql, kinds=kinds).first_kind for name, sql in kinds)
    assert [*firsts] == [False, True, False]


def test_the_first_kind_of_all_has_what_is_encrypted_if_none_needs_fields() -> None:
    kinds = tuple((name, f"message.key = '{name}'") for name in ("news", "orders"))
    firsts = (Topic(name, "kind STRING", topic="events", where=sql, kinds=kinds).first_kind for name, sql in kinds)
    assert [*firsts] == [True, False]


@pytest.mark.parametrize(
    ("given", "line"),
    [
        ({"fields": "id BIGINT, Row STRING"}, "field Row: SQL has the element of ids under this name"),
        ({"fields": "id BIGINT", "envelope": Debezium()}, "rows ids: an envelope has one row: leave out one of them"),
    ],
)
def test_rows_that_can_not_be_are_refused(given: dict[str, Any], line: str) -> None:
    with pytest.raises(ConfigurationError, match=f"^topic posts: {line}$"):
        Topic("posts", rows="ids", **given)
