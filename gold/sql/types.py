"""The types that columns of declared tables have where they are published."""

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
"""Of a type that is not among these, there is none in Postgres here."""
