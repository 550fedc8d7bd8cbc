"""Parses JSON payloads: one object, and nothing else."""

import json
import re
import sys

from pulsar_lakehouse.contracts.values import NotReadableError, Number, Pairs, Value, not_utf8

WHITESPACE = " \t\r\n"
DEEPEST = 1000
NO_OBJECT = "not a JSON object"
TOO_DEEP = f"nested more than {DEEPEST:,} levels deep"
sys.setrecursionlimit(max(sys.getrecursionlimit(), 10 * DEEPEST))
BRACKETS = re.compile(r'"(?:[^"\\]|\\.)*"|[][{}]', re.DOTALL)
PAIR = re.compile(r"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}")
HALF = re.compile(r"\\u[dD][89a-fA-F][0-9a-fA-F]{2}")


def _refuse(constant: str) -> None:
    raise ValueError(constant)  # JSON has no NaN and no Infinity


_DECODER = json.JSONDecoder(
    object_pairs_hook=Pairs, parse_int=Number, parse_float=Number, parse_constant=_refuse, strict=True
)


def parse_object(payload: bytes) -> Pairs:
    """The object of a payload. Raises NotReadableError."""
    value = parse_object_or_array(payload)
    if not isinstance(value, Pairs):
        raise NotReadableError(NO_OBJECT)
    return value


def parse_object_or_array(payload: bytes) -> Pairs | list[Value]:
    """The object or the array of a payload. Raises NotReadableError."""
    try:
        text = payload.decode()
    except UnicodeDecodeError as error:
        raise NotReadableError(not_utf8(error)) from None
    if text.startswith("\ufeff"):
        raise NotReadableError("begins with a byte order mark")
    if is_deep(payload) and _depth(text) > DEEPEST:
        raise NotReadableError(TOO_DEEP)
    start = len(text) - len(text.lstrip(WHITESPACE))
    try:
        value, end = _DECODER.raw_decode(text, start)
    except ValueError:
        raise NotReadableError(NO_OBJECT) from None
    if not isinstance(value, list):  # as Pairs are, too
        raise NotReadableError(NO_OBJECT)
    if "\\u" in text and (half := HALF.search(PAIR.sub(" ", text.replace("\\\\", "  ")))):
        raise NotReadableError(f"half a surrogate pair: {half[0]}")
    if text[end:].strip(WHITESPACE):
        raise NotReadableError("more after the JSON object")
    return value


def parse_value(text: bytes) -> Value:
    """A value that is known to be JSON."""
    return _DECODER.decode(text.decode())


def is_deep(payload: bytes) -> bool:
    """Whether a payload may be nested too deep to be read."""
    return len(payload) > 2 * DEEPEST and payload.count(b"[") + payload.count(b"{") > DEEPEST


def _depth(text: str) -> int:
    depth = deepest = 0
    for token in BRACKETS.findall(text):
        depth += (token in "[{") - (token in "]}")
        deepest = max(deepest, depth)
    return deepest
