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
WRONG = {
    "": "'' is no field: must be a name and a type, such as city STRING",
    "id BIGINT, city": "'city' is no field: must be a name and a type, such as city STRING",
    "id BIGINT,": "'' is no field: must be a name and a type, such as city STRING",
    "id BIGINT NOT": f"field id is BIGINT NOT: must be one of {TYPES}",
    "id BIGINT PRIMARY KEY": f"field id is BIGINT PRIMARY KEY: must be one of {TYPES}",
    "id BIGINT; city STRING": f"field id is BIGINT; city STRING: must be one of {TYPES}",
    "price FLOAT NOT NULL": f"field price is FLOAT: must be one of {TYPES}",
    "price DECIMAL(39, 2)": "field price is DECIMAL(39, 2): must have 1 to 38 digits, at most all after the point",
    "price DECIMAL(2, 3)": "field price is DECIMAL(2, 3): must have 1 to 38 digits, at most all after the point",
    "id BIGINT, id STRING": "field id is declared twice",
    "a STRUCT<b INT, b INT>": "field a.b is declared twice",
    "a STRUCT<b: TEXT>": f"field a.b is TEXT: must be one of {TYPES}",
    "a STRUCT<>": "'' is no field: must be a name and a type, such as city STRING",
    "a ARRAY<STRUCT<b TEXT>>": f"field a[].b is TEXT: must be one of {TYPES}",
    "a ARRAY<INT": f"field a is ARRAY<INT: must be one of {TYPES}",
    "a MAP<INT, STRING>": f"field a is MAP<INT, STRING>: must be one of {TYPES}",
    "a ENUM()": f"field a is ENUM(): must be one of {TYPES}",
    "a ENUM(NEW)": f"field a is ENUM(NEW): must be one of {TYPES}",
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
