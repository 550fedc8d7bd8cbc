"""Reads the fields of a topic from DDL text. Spark's own parser needs a running JVM; declarations are read without."""

import re
from collections.abc import Iterator, Mapping

from pyspark.sql import types as T

from pulsar_lakehouse.contracts.types import NAMES, Enum, TimestampMicros, TimestampMillis

TYPES: Mapping[str, T.DataType] = {
    "BOOLEAN": T.BooleanType(),
    "INT": T.IntegerType(),
    "INTEGER": T.IntegerType(),
    "BIGINT": T.LongType(),
    "LONG": T.LongType(),
    "DOUBLE": T.DoubleType(),
    "STRING": T.StringType(),
    "BINARY": T.BinaryType(),
    "DATE": T.DateType(),
    "TIMESTAMP": T.TimestampType(),
    "TIMESTAMP_MILLIS": TimestampMillis(),
    "TIMESTAMP_MICROS": TimestampMicros(),
}
TOKEN = re.compile(r"'(?:[^']|'')*'|`[^`]*`|.", re.DOTALL)
FIELD = re.compile(r"\s*(`[^`]+`|\w+)(?:\s*:\s*|\s+)(\S.*?)(\s+NOT\s+NULL)?\s*", re.IGNORECASE | re.DOTALL)
NESTED = re.compile(r"(STRUCT|ARRAY|MAP)\s*<(.*)>|(ENUM)\s*\((.*)\)", re.IGNORECASE | re.DOTALL)
DECIMAL = re.compile(r"(?:DECIMAL|DEC|NUMERIC)(?:\s*\(\s*(\d+)\s*(?:,\s*(\d+)\s*)?\))?", re.IGNORECASE)
TEXT = re.compile(r"\s*'((?:[^']|'')*)'\s*", re.DOTALL)


def parse_fields(ddl: str) -> T.StructType:
    """The fields that a text like `id BIGINT NOT NULL, city STRING` declares.

    Raises ValueError, which says in one line what is wrong.
    """
    return _struct(ddl, "")


def _struct(ddl: str, within: str) -> T.StructType:
    fields = list(_fields(ddl, within))
    names = [field.name for field in fields]
    if twice := [name for name in names if names.count(name) > 1]:
        raise ValueError(f"field {within}{twice[0]} is declared twice")
    return T.StructType(fields)


def _fields(ddl: str, within: str) -> Iterator[T.StructField]:
    for text in _parts(ddl):
        field = FIELD.fullmatch(text)
        if not field:
            raise ValueError(f"'{_line(text)}' is no field: must be a name and a type, such as city STRING")
        name, kind, required = field[1].strip("`"), field[2], field[3]
        yield T.StructField(name, _type(kind, f"{within}{name}"), nullable=required is None)


def _type(text: str, path: str) -> T.DataType:
    if kind := TYPES.get(text.upper()):
        return kind
    if decimal := DECIMAL.fullmatch(text):
        precision, scale = int(decimal[1] or 10), int(decimal[2] or 0)
        if scale <= precision <= 38 and precision > 0:
            return T.DecimalType(precision, scale)
        raise ValueError(f"field {path} is {_line(text)}: must have 1 to 38 digits, at most all after the point")
    if nested := NESTED.fullmatch(text):
        inner = nested[4] if nested[3] else nested[2]
        parts = list(_parts(inner))
        match (nested[1] or nested[3]).upper():
            case "STRUCT":
                return _struct(inner, f"{path}.")
            case "ARRAY" if len(parts) == 1:
                return T.ArrayType(_type(inner.strip(), f"{path}[]"))
            case "MAP" if len(parts) == 2 and parts[0].strip().upper() == "STRING":
                return T.MapType(T.StringType(), _type(parts[1].strip(), f"{path}[]"))
            case "ENUM" if all(values := [TEXT.fullmatch(part) for part in parts]):
                return Enum(*(value[1].replace("''", "'") for value in values if value))
    raise ValueError(f"field {path} is {_line(text)}: must be one of {NAMES}, or one with NOT NULL")


def _parts(text: str) -> Iterator[str]:
    """The texts between the commas that are in no brackets and no quotes."""
    depth, part = 0, ""
    for token in TOKEN.findall(text):
        depth += (token in "<(") - (token in ">)")
        if token == "," and depth == 0:
            yield part
            part = ""
        else:
            part += token
    yield part


def _line(text: str) -> str:
    return " ".join(text.split())
