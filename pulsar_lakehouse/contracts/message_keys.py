"""Reads message keys, in each form that producers write them, as the text of a row's key."""

import base64
import binascii
import json
import struct
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from pulsar_lakehouse.contracts.json_objects import parse_object
from pulsar_lakehouse.contracts.primitives import parse_primitive
from pulsar_lakehouse.contracts.types import KeyEncoding
from pulsar_lakehouse.contracts.values import NotReadableError, Number, Pairs, Value, as_text


class Split(NamedTuple):
    """The two parts of a KeyValue message. None stands for null."""

    key: bytes | None
    value: bytes | None


def split(payload: bytes | None, key: str | None, *, is_inline: bool) -> Split:
    """The parts of a KeyValue message: the key is in the message key, in base64, or before the value in the payload.

    Raises NotReadableError.
    """
    if not is_inline:
        return Split(key_bytes(key), payload)
    if payload is None:
        return Split(None, None)
    first, rest = _part(payload)
    second, rest = _part(rest)
    if rest:
        raise NotReadableError("more after the KeyValue")
    return Split(first, second)


def _part(data: bytes) -> tuple[bytes | None, bytes]:
    """A part after its length, which is -1 for null, and what follows it."""
    if len(data) < 4:
        raise NotReadableError("no KeyValue")
    [length] = struct.unpack(">i", data[:4])
    if length < 0:
        return None, data[4:]
    if len(data) < 4 + length:
        raise NotReadableError("no KeyValue")
    return data[4 : 4 + length], data[4 + length :]


def key_bytes(key: str | None) -> bytes | None:
    """The bytes that a client shows in base64. Raises NotReadableError."""
    try:
        return None if key is None else base64.b64decode(key, validate=True)
    except (binascii.Error, ValueError):
        raise NotReadableError(f"message key {key} is not in base64") from None


def key_object(key: str | None, encoding: KeyEncoding) -> Value:
    """The value of a message key as it is declared: a text, an object, or None."""
    if key is None or encoding is KeyEncoding.NONE:
        return None
    try:
        if encoding is KeyEncoding.BYTES:
            return parse_text_or_object(key_bytes(key) or b"")
        return parse_object(key.encode()) if encoding is KeyEncoding.JSON else key
    except NotReadableError:
        return key  # as it is, so that a reason can show it


def parse_text_or_object(data: bytes) -> Value:
    """A text, or the object that it is. Raises NotReadableError."""
    return parse_object(data) if data.startswith(b"{") else parse_primitive(data, "STRING")


def text_of_key(value: Value, names: Sequence[Sequence[str]]) -> str | None:
    """The text of a key's value, as keys.py makes it of a row: of an object, its fields with these names, in order.

    Each field has several names: that of the column and that of the payload's field.
    """
    if value is None:
        return None
    if not isinstance(value, Pairs | dict):
        return as_text(value)
    fields: Mapping[str, Value] = dict(value)
    values = [next((fields[name] for name in each if name in fields), None) for each in names]
    if len(fields) == len(names) == 1 and values == [None]:
        values = [*fields.values()]
    if not values or None in values:
        return as_text(value)
    if len(values) == 1:
        return as_text(values[0])
    return f"[{','.join(map(_element, values))}]"


def _element(value: Value) -> str:
    if isinstance(value, Number) or not isinstance(value, str):
        return as_text(value)
    return json.dumps(value, ensure_ascii=False)
