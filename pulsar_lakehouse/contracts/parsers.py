"""The parser in C that reads JSON payloads as their topic is declared. It takes less than the decoder does."""

import re
from base64 import b64encode
from collections.abc import Callable
from typing import Annotated, Any, Literal, NotRequired, Required, TypedDict

import msgspec
from pyspark.sql import types as T

from pulsar_lakehouse.contracts.envelopes import Debezium, path_of
from pulsar_lakehouse.contracts.topics import Topic
from pulsar_lakehouse.contracts.types import Enum, TimestampMicros, TimestampMillis
from pulsar_lakehouse.contracts.values import BITS, MICROS, MILLIS, Value

Parse = Callable[[bytes], dict[str, Value]]
"""Raises ValueError for what it does not take."""


def json_parser(topic: Topic) -> Parse:
    if topic.envelope:
        return _change_parser(topic.fields)
    parse: Parse = msgspec.json.Decoder(typed_dict(topic.fields)).decode
    return _array_parser(topic.fields[0], parse) if topic.is_array else parse


def _array_parser(field: T.StructField, parse_object: Parse) -> Parse:
    """Parses payloads that are objects, or the array that is their only field."""
    parse_array = msgspec.json.Decoder(parsed_type(field.dataType)).decode

    def parse(payload: bytes) -> dict[str, Value]:
        return {field.name: parse_array(payload)} if payload.startswith(b"[") else parse_object(payload)

    return parse


def _change_parser(fields: T.StructType) -> Parse:
    """Parses the envelopes of rows that are not deleted."""
    paths = {each.name: path for each in fields if (path := path_of(each.name))}
    row = typed_dict(T.StructType([each for each in fields if each.name not in paths]))
    parts: dict[str, Any] = {"op": Required[Literal["c", "r", "u"]], "after": Required[row]}
    inner: dict[str, dict[str, Any]] = {}
    for name, path in paths.items():
        within = inner.setdefault(path[0], {}) if len(path) > 1 else parts
        if path != ("op",):
            within[path[-1]] = NotRequired[_or_null(parsed_type(fields[name].dataType))]
    parts |= {name: NotRequired[_or_null(TypedDict(name, each))] for name, each in inner.items()}  # type: ignore[operator]
    envelope = TypedDict("Envelope", parts)  # type: ignore[misc]
    parse_plain = msgspec.json.Decoder(envelope).decode
    parts_of_wrapped = [("schema", msgspec.Raw), ("payload", envelope)]
    wrapped: Any = msgspec.defstruct("Wrapped", parts_of_wrapped, forbid_unknown_fields=True)
    parse_wrapped = msgspec.json.Decoder(wrapped).decode
    tells_scales = any(_has_decimals(each.dataType) for each in fields)

    def parse(payload: bytes) -> dict[str, Value]:
        if payload.startswith(WRAPPED):
            if tells_scales:
                raise ValueError("only the schema beside the payload tells the scales of decimals")
            parsed = parse_wrapped(payload).payload
        else:
            parsed = parse_plain(payload)
        row: dict[str, Value] = parsed["after"]
        for name, (first, *rest) in paths.items():
            value = parsed.get(first)
            row[name] = (value or {}).get(rest[0]) if rest else value
        return row

    return parse


WRAPPED = b'{"schema":'
"""Begins what Connect's JSON converter writes."""


def may_be_unavailable(envelope: Debezium) -> str:
    """A regular expression for JSON texts that may have a value which the database did not log."""
    text = envelope.unavailable_value
    numbers = r"\s*,\s*".join(map(str, text.encode()[:3]))
    escapes = r"\\u" if re.fullmatch(r"\w*", text, re.ASCII) else r"\\"
    return "|".join([re.escape(text), re.escape(b64encode(text.encode()).decode()), numbers, ARRAY_OF_A_UUID, escapes])


ARRAY_OF_A_UUID = r'-[0-9a-f]{12}"\s*\]'


def _has_decimals(kind: T.DataType) -> bool:
    match kind:
        case T.StructType():
            return any(_has_decimals(each.dataType) for each in kind)
        case T.ArrayType():
            return _has_decimals(kind.elementType)
        case T.MapType():
            return _has_decimals(kind.valueType)
    return isinstance(kind, T.DecimalType)


def typed_dict(fields: T.StructType) -> Any:
    """The type that the parser in C reads an object as. If a field occurs more than once, it checks each value."""
    kinds = {each.name: parsed_type(each.dataType) for each in fields}
    return TypedDict(  # type: ignore[operator]
        "Fields",
        {
            each.name: NotRequired[_or_null(kinds[each.name])] if each.nullable else Required[kinds[each.name]]
            for each in fields
        },
    )


def _or_null(kind: Any) -> Any:
    return kind if kind is msgspec.Raw else kind | None


def parsed_type(kind: T.DataType) -> Any:
    """The type that the parser in C reads a value as: Raw for what it does not read as the decoder does."""
    match kind:
        case T.BooleanType():
            return bool
        case T.IntegerType() | T.LongType():
            limit = 1 << BITS[type(kind)] - 1
            return Annotated[int, msgspec.Meta(ge=-limit, le=limit - 1)]
        case T.DoubleType():
            return float
        case TimestampMillis():
            return Annotated[int, msgspec.Meta(ge=MILLIS[0], le=MILLIS[1])]
        case TimestampMicros():
            return Annotated[int, msgspec.Meta(ge=MICROS[0], le=MICROS[1])]
        case Enum():
            return Literal[kind.values]
        case T.StringType():
            return str
        case T.ArrayType() if (item := parsed_type(kind.elementType)) is not msgspec.Raw:
            return list[_or_null(item) if kind.containsNull else item]  # type: ignore[misc]
        case T.StructType() if not any(parsed_type(each.dataType) is msgspec.Raw for each in kind):
            return typed_dict(kind)
    return msgspec.Raw
