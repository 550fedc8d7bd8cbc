"""Reads the fields of a topic from DDL text. Spark's own parser needs a running JVM; declarations are read without."""

import re
from collections.abc import Iterator, Mapping

from pyspark.sql import types as T

from pulsar_lakehouse.contracts.types import NAMES, Enum, TimestampMicros, TimestampMillis
from pulsar_lakehouse.near import did_you_mean

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
NESTING = ("STRUCT", "ARRAY", "MAP", "ENUM", "DECIMAL")
ELSEWHERE = {
    **dict.fromkeys(("TINYINT", "SMALLINT", "SHORT", "BYTE"), "INT"),
    **dict.fromkeys(("FLOAT", "REAL"), "DOUBLE"),
    **dict.fromkeys(("TEXT", "VARCHAR", "CHAR", "UUID", "JSON"), "STRING"),
    **dict.fromkeys(("DATETIME", "TIMESTAMPTZ"), "TIMESTAMP"),
    **dict.fromkeys(("BYTES", "BYTEA", "BLOB"), "BINARY"),
}
"""What other databases call types, and the type here that takes their values."""
PAIRS = {"<": ">", "(": ")"}
TOKEN = re.compile(r"'(?:[^']|'')*'|`[^`]*`|.", re.DOTALL)
FIELD = re.compile(r"\s*(`[^`]+`|\w+)(?:\s*:\s*|\s+)(\S.*?)(\s+NOT\s+NULL)?\s*", re.IGNORECASE | re.DOTALL)
NESTED = re.compile(r"(STRUCT|ARRAY|MAP)\s*<(.*)>|(ENUM)\s*\((.*)\)", re.IGNORECASE | re.DOTALL)
DECIMAL = re.compile(r"(?:DECIMAL|DEC|NUMERIC)(?:\s*\(\s*(\d+)\s*(?:,\s*(\d+)\s*)?\))?", re.IGNORECASE)
TEXT = re.compile(r"\s*'((?:[^']|'')*)'\s*", re.DOTALL)


def parse_fields(ddl: str) -> T.StructType:
    """The fields that a text like `id BIGINT NOT NULL, city STRING` declares.

    Raises ValueError, which says in one line what is wrong.
    """
    if wrong := _unpaired(ddl):
        raise ValueError(wrong)
    return _struct(ddl, "")


def _unpaired(ddl: str) -> str:
    """What is wrong with the first bracket or quote that has no other one; empty if each has."""
    opened: list[tuple[str, str]] = []
    before = ""
    for token in TOKEN.findall(ddl):
        after = f"`{token}` after `{' '.join(before.split()[-2:])}`"
        if token in "'`":
            return f"the {after} is never closed"
        if token in ">)" and not opened:
            return f"the {after} was never opened"
        if token in "<(":
            opened.append((PAIRS[token], after))
        elif token in ">)":
            closing, opening = opened.pop()
            if closing != token:
                return f"the {opening} is never closed"
        before += token
    return f"the {opened[-1][1]} is never closed" if opened else ""


def _struct(ddl: str, within: str) -> T.StructType:
    fields = list(_fields(ddl, within))
    names = [field.name for field in fields]
    if twice := [name for name in names if names.count(name) > 1]:
        raise ValueError(f"field {within}{twice[0]} is declared twice")
    return T.StructType(fields)


def _fields(ddl: str, within: str) -> Iterator[T.StructField]:
    before = ""
    for text in _parts(ddl):
        field = FIELD.fullmatch(text)
        if not text.strip() and before:
            raise ValueError(f"no field follows the comma after `{_line(before)}`")
        before = text
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
    raise ValueError(f"field {path} {_why_no_type(_line(text))}")


def _why_no_type(text: str) -> str:
    """What is wrong with what a field has in place of a type."""
    word = "".join(re.findall(r"^\w+", text)).upper()
    kind, sign, rest = _after_type(text)
    if word == "MAP" and not rest:
        return f"is {text}: must be MAP<STRING, ...>: the keys of objects are texts"
    if word == "ENUM" and not rest:
        return f"is {text}: must be texts in quotes, such as ENUM('a', 'b')"
    if kind and sign == ";":
        return f"is {text}: must have a comma in place of the `;`"
    if kind and _is_field(rest):
        return f"is {kind}, and no comma is before `{rest}`"
    if kind:
        return f"is {kind} with `{rest}` after it: must be {kind}, or {kind} NOT NULL"
    if _after_type(text.partition(" ")[2])[0]:
        return f"has no type before `{text}`: give it one, or put backquotes around both"
    meant = f"; did you mean {ELSEWHERE[word]}?" if word in ELSEWHERE else did_you_mean(word, (*TYPES, *NESTING))
    return f"is {text}: must be one of {NAMES}, or one with NOT NULL{meant}"


def _after_type(text: str) -> tuple[str, str, str]:
    """The type with which a text begins, with its NOT NULL; the sign after it, if it is a `;`; and the rest."""
    kind = r"(?:STRUCT|ARRAY|MAP)\s*<.*>|ENUM\s*\(.*?\)|DECIMAL(?:\s*\([\d\s,]*\))?|" + "|".join(TYPES)
    found = re.match(rf"((?:{kind})(?:\s+NOT\s+NULL)?)(?!\w)\s*(;?)\s*(.*)", text, re.IGNORECASE)
    return (found[1], found[2], found[3]) if found else ("", "", "")


def _is_field(text: str) -> bool:
    field = FIELD.fullmatch(text)
    return field is not None and bool(_after_type(field[2])[0])


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
