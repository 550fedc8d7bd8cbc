import re

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.types import ArrayType, StructField, StructType

from pulsar_lakehouse.contracts.ddl import parse_fields
from pulsar_lakehouse.contracts.types import NAMES, Enum, TimestampMicros, TimestampMillis

DDL = (
    "id BIGINT NOT NULL, city STRING",
    "a boolean, b INT, c integer, d long not  null, e Double",
    "id: BIGINT, `of day`: STRING NOT NULL, `date` INT",
    "\n  id BIGINT NOT NULL,\n  first_name STRING\n",
    "a DECIMAL(18, 2) NOT NULL, b decimal(5), c DEC, d NUMERIC(3,3), e DATE, f TIMESTAMP",
    "a STRUCT<zip: BIGINT NOT NULL, `of day` STRING, geo: STRUCT<lat: DOUBLE>> NOT NULL, b array< int >",
    "a ARRAY<STRUCT<sku STRING, tags ARRAY<STRING>>>, b MAP<STRING, DECIMAL(6, 2)>, c MAP<STRING,ARRAY<DATE>>",
)
TYPES = f"{NAMES}, or one with NOT NULL"
NO_COMMA = "and no comma is before"
WRONG = {
    "": "'' is no field: must be a name and a type, such as city STRING",
    "id BIGINT, city": "'city' is no field: must be a name and a type, such as city STRING",
    "id BIGINT,": "no field follows the comma after `id BIGINT`",
    "id BIGINT,, city STRING": "no field follows the comma after `id BIGINT`",
    "id BIGINT NOT": "field id is BIGINT with `NOT` after it: must be BIGINT, or BIGINT NOT NULL",
    "id BIGINT PRIMARY KEY": "field id is BIGINT with `PRIMARY KEY` after it: must be BIGINT, or BIGINT NOT NULL",
    "id BIGINT; city STRING": "field id is BIGINT; city STRING: must have a comma in place of the `;`",
    "id BIGINT NOT NULL city STRING": f"field id is BIGINT NOT NULL, {NO_COMMA} `city STRING`",
    "a STRUCT<b: STRING c: STRING>": f"field a.b is STRING, {NO_COMMA} `c: STRING`",
    "my city STRING": "field my has no type before `city STRING`: give it one, or put backquotes around both",
    "price FLOAT NOT NULL": f"field price is FLOAT: must be one of {TYPES}; did you mean DOUBLE?",
    "city STRNG": f"field city is STRNG: must be one of {TYPES}; did you mean STRING?",
    "price DECIMAL(39, 2)": "field price is DECIMAL(39, 2): must have 1 to 38 digits, at most all after the point",
    "price DECIMAL(2, 3)": "field price is DECIMAL(2, 3): must have 1 to 38 digits, at most all after the point",
    "id BIGINT, id STRING": "field id is declared twice",
    "a STRUCT<b INT, b INT>": "field a.b is declared twice",
    "a STRUCT<b: TEXT>": f"field a.b is TEXT: must be one of {TYPES}; did you mean STRING?",
    "a STRUCT<>": "'' is no field: must be a name and a type, such as city STRING",
    "a ARRAY<STRUCT<b TEXT>>": f"field a[].b is TEXT: must be one of {TYPES}; did you mean STRING?",
    "a ARRAY<INT": "the `<` after `a ARRAY` is never closed",
    "id BIGINT, a STRUCT<b: INT, c: INT": "the `<` after `a STRUCT` is never closed",
    "a STRUCT<b: DECIMAL(10, 2>": "the `(` after `STRUCT<b: DECIMAL` is never closed",
    "a STRUCT<b INT>>": "the `>` after `STRUCT<b INT>` was never opened",
    "a ENUM('b, c)": "the `'` after `a ENUM(` is never closed",
    "a MAP<INT, STRING>": "field a is MAP<INT, STRING>: must be MAP<STRING, ...>: the keys of objects are texts",
    "a ENUM()": "field a is ENUM(): must be texts in quotes, such as ENUM('a', 'b')",
    "a ENUM(NEW)": "field a is ENUM(NEW): must be texts in quotes, such as ENUM('a', 'b')",
}


def test_it_reads_what_spark_reads(spark: SparkSession) -> None:
    assert [parse_fields(ddl) for ddl in DDL] == [StructType.fromDDL(ddl) for ddl in DDL]


def test_types_of_its_own_are_times_as_numbers_and_enums() -> None:
    ddl = "a TIMESTAMP_MILLIS, b ARRAY<timestamp_micros>, c ENUM('A', 'b, c', 'it''s') NOT NULL"
    assert parse_fields(ddl) == StructType(
        [
            StructField("a", TimestampMillis()),
            StructField("b", ArrayType(TimestampMicros())),
            StructField("c", Enum("A", "b, c", "it's"), nullable=False),
        ]
    )


@pytest.mark.parametrize(("ddl", "reason"), WRONG.items())
def test_what_it_can_not_read_is_said(ddl: str, reason: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(reason)}$"):
        parse_fields(ddl)
