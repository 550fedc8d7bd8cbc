"""Reads the fields of a topic from DDL text. Spark's own parser needs a running JVM; declarations are read without."""

import re
from collections.abc import Iterator, Mapping

from pyspark.sql.types import (
    BooleanType,
    DataType,
    DoubleType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
)

TYPES: Mapping[str, DataType] = {
    "BOOLEAN": BooleanType(),
    "INT": IntegerType(),
    "INTEGER": IntegerType(),
    "BIGINT": LongType(),
    "LONG": LongType(),
    "DOUBLE": DoubleType(),
    "STRING": StringType(),
}
COMMA = r",(?![^<(]*[>)])"
"""A comma between fields, not one within a type such as DECIMAL(10, 2)."""
FIELD = re.compile(r"\s*(`[^`]+`|\w+)(?:\s*:\s*|\s+)(\S.*?)(\s+NOT\s+NULL)?\s*", re.IGNORECASE | re.DOTALL)


def parse_fields(ddl: str) -> StructType:
    """The fields that a text like `id BIGINT NOT NULL, city STRING` declares.

    Raises ValueError, which says in one line what is wrong.
    """
    fields = list(_fields(ddl))
    names = [field.name for field in fields]
    if twice := [name for name in names if names.count(name) > 1]:
        raise ValueError(f"field {twice[0]} is declared twice")
    return StructType(fields)


def _fields(ddl: str) -> Iterator[StructField]:
    for text in re.split(COMMA, ddl):
        found = FIELD.fullmatch(text)
        if not found:
            raise ValueError(f"'{_line(text)}' is no field: must be a name and a type, such as city STRING")
        name, kind, required = found.groups()
        if kind.upper() not in TYPES:
            raise ValueError(f"field {name} is {_line(kind)}: must be one of {', '.join(TYPES)}, or one with NOT NULL")
        yield StructField(name.strip("`"), TYPES[kind.upper()], nullable=required is None)


def _line(text: str) -> str:
    return " ".join(text.split())
