"""Writes the rows of a source as messages: SQL of DuckDB for their keys and payloads, which the contract then reads.

A value that is none of the declared type is written as it came: merging finds the message malformed, and says why.
"""

import json
from collections.abc import Sequence

from pyspark.sql import types as T

from pulsar_lakehouse.contracts.types import TimestampMicros, TimestampMillis

WHOLE = r"[+-]?\d{1,38}"
OFFSET = r".*([Zz]|[+-]\d{2}(:?\d{2})?)"
NESTED = (T.StructType, T.ArrayType, T.MapType)
NUMBERS = (T.IntegerType, T.LongType, TimestampMillis, TimestampMicros)


def payload_sql(fields: T.StructType, *, of_texts: bool) -> str:
    """The payload: a JSON object, without the fields that are NULL. `of_texts` says that all columns are texts."""
    values = [f"{_quoted(each.name)} || {value_sql(each, of_texts=of_texts)}" for each in fields]
    return f"'{{' || concat_ws(',', {', '.join(values)}) || '}}'"


def key_sql(fields: Sequence[T.StructField], *, of_texts: bool) -> str:
    """The key as `contracts.keys.key_text` writes it: a value as text, several as a JSON array; NULL if one is."""
    values = [value_sql(each, of_texts=of_texts) for each in fields]
    if len(values) == 1:
        return f"({values[0]})::JSON ->> '$'"
    elements = " || ',' || ".join(values)
    return f"'[' || {elements} || ']'"


def value_sql(field: T.StructField, *, of_texts: bool) -> str:
    """The JSON of a value; NULL if it is NULL."""
    column = identifier(field.name)
    return _of_text(column, field.dataType) if of_texts else _of_value(column, field.dataType)


def _of_text(text: str, kind: T.DataType) -> str:
    match kind:
        case _ if type(kind) in NUMBERS:
            return (
                f"CASE WHEN {_fits(f'trim({text})', WHOLE)} THEN trim({text})::HUGEINT::VARCHAR ELSE {_json(text)} END"
            )
        case T.DoubleType():
            number = f"TRY_CAST({text} AS DOUBLE)"
            return f"CASE WHEN isfinite({number}) THEN {number}::VARCHAR ELSE {_json(text)} END"
        case T.BooleanType():
            is_true, is_false = (f"lower(trim({text})) IN ({words})" for words in ("'true', 't'", "'false', 'f'"))
            return f"CASE WHEN {is_true} THEN 'true' WHEN {is_false} THEN 'false' ELSE {_json(text)} END"
        case T.TimestampType():
            return _json(f"CASE WHEN {_fits(text, OFFSET)} THEN {text} ELSE {text} || 'Z' END")
        case _ if isinstance(kind, NESTED):
            return f"CASE WHEN json_valid({text}) THEN {text} ELSE {_json(text)} END"
    return _json(text)


def _of_value(value: str, kind: T.DataType) -> str:
    match kind:
        case _ if type(kind) in NUMBERS:
            return f"{value}::VARCHAR"
        case T.DoubleType():
            return f"CASE WHEN isfinite({value}) THEN {value}::DOUBLE::VARCHAR ELSE {_json(f'{value}::VARCHAR')} END"
        case T.BinaryType():
            return _json(f"to_base64({value})")
        case T.TimestampType():
            in_utc = f"({value}::TIMESTAMPTZ AT TIME ZONE 'UTC')"
            return _json(f"strftime({in_utc}, '%Y-%m-%dT%H:%M:%S.%fZ')")
        case T.BooleanType():
            return f"{value}::VARCHAR"
        case _ if isinstance(kind, NESTED):
            return _json(value)
    return _json(f"{value}::VARCHAR")


def _json(value: str) -> str:
    return f"to_json({value})::VARCHAR"


def _fits(text: str, pattern: str) -> str:
    return f"regexp_full_match({text}, '{pattern}')"


def _quoted(name: str) -> str:
    """A name as JSON, with its colon, as a text of SQL."""
    return "'" + f"{json.dumps(name, ensure_ascii=False)}:".replace("'", "''") + "'"


def identifier(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
