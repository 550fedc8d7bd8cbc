"""The types of published columns in Postgres."""

from typing import LiteralString

from pyspark.sql import types as T

POSTGRES_TYPES: dict[type[T.DataType], LiteralString] = {
    T.ArrayType: "jsonb",
    T.BooleanType: "boolean",
    T.DateType: "date",
    T.DecimalType: "numeric",
    T.DoubleType: "double precision",
    T.FloatType: "real",
    T.IntegerType: "integer",
    T.LongType: "bigint",
    T.StringType: "text",
    T.StructType: "jsonb",
    T.TimestampType: "timestamptz",
}
"""Columns of other types can't be published to Postgres."""
