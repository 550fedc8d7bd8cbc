"""The types of published columns in Postgres."""

from typing import LiteralString

from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    StringType,
    StructType,
    TimestampType,
)

POSTGRES_TYPES: dict[type[DataType], LiteralString] = {
    ArrayType: "jsonb",
    BooleanType: "boolean",
    DateType: "date",
    DecimalType: "numeric",
    DoubleType: "double precision",
    FloatType: "real",
    IntegerType: "integer",
    LongType: "bigint",
    StringType: "text",
    StructType: "jsonb",
    TimestampType: "timestamptz",
}
"""Columns of other types can't be published to Postgres."""
