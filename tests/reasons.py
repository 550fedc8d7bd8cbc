"""Whether the reason for which the product rejects a message is true, in plain Python."""

import json
import re
from collections.abc import Callable, Mapping

from tests.oracle import CONTRACTS, Message, Pairs, is_key, is_of, is_within, order_row, parse

WHITESPACE = " \t\r\n"
KINDS: Mapping[str, str] = {"bigint": "long", "timestamp_millis": "time", "double": "double", "string": "string"}
DECODER = json.JSONDecoder(object_pairs_hook=Pairs, parse_int=lambda digits: int(digits[:1001]))


def is_true_of(reason: str, message: Message) -> bool:
    if not message.payload:
        return (reason == "tombstone: a fact can't be deleted" and message.topic == "orders") or (
            reason.startswith("tombstone whose message key is not of type BIGINT: ") and not is_key(message.key)
        )
    for pattern, holds in WHOLE.items():
        if found := re.fullmatch(pattern, reason, re.DOTALL):
            return holds(message, *found.groups())
    names = "|".join(CONTRACTS[message.topic])
    parts = re.split(rf"; (?=(?:{names}) is )", reason)
    return all(_is_true_of_a_field(part, message) for part in parts)


def _is_true_of_a_field(reason: str, message: Message) -> bool:
    found = re.fullmatch(r"(\w+) is (?:(missing)|no (\w+)(?:: .*| each time)|(out of range): .*)", reason, re.DOTALL)
    value, _ = _first_object(_text(message))
    if not found or value is None:
        return False
    name, missing, kind, _ = found.groups()
    declared = CONTRACTS[message.topic][name].rstrip("!")
    given = [each for field, each in value if field == name]
    if missing:
        return not given or given[-1] is None
    if kind:
        return KINDS[kind] == declared and not all(_fits(declared, each) for each in given)
    return not all(each is None or is_within(declared, each) for each in given)


def _fits(kind: str, value: object) -> bool:
    return value is None or is_of(kind, value)


def _text(message: Message) -> str:
    return (message.payload or b"").decode(errors="replace")


def _first_object(text: str) -> tuple[Pairs | None, str]:
    """The JSON object that a text begins with, or None, and the text after it."""
    try:
        value, end = DECODER.raw_decode(text.lstrip(WHITESPACE))
    except (ValueError, RecursionError):  # deeper than Python can read, so deeper than the product may
        return None, text
    return (value if isinstance(value, Pairs) else None), text.lstrip(WHITESPACE)[end:]


def _is_utf8_up_to(message: Message, byte: str) -> bool:
    try:
        (message.payload or b"").decode()
    except UnicodeDecodeError as error:
        return error.start == int(byte)
    return False


def _has_no_object(message: Message) -> bool:
    value, _ = _first_object(_text(message))
    return value is None or re.search(r"\b(NaN|Infinity)\b", _text(message)) is not None


def _has_more(message: Message) -> bool:
    value, rest = _first_object(_text(message))
    return value is not None and rest.strip(WHITESPACE) != ""


def _has_other_key(message: Message, key: str, id: str) -> bool:
    fields = parse(message)
    return fields is not None and str(fields["id"]) == id != message.key and (message.key or "").startswith(key[:100])


def _fails(message: Message, checks: str) -> bool:
    fields = parse(message)
    if fields is None:
        return False
    if message.topic == "items":
        return checks == "price_is_not_negative" and fields["price"] < 0
    order = order_row(fields)
    failed = {
        "price_is_an_amount": not 0 <= order["price"] < 1e15,
        "is_paid_after_creation": order["paid_at"] is not None and order["paid_at"] < order["created_at"],
    }
    return set(checks.split(", ")) == {name for name, fails in failed.items() if fails}


def _is_deep(message: Message) -> bool:
    return _text(message).count("[") + _text(message).count("{") > 1000


WHOLE: Mapping[str, Callable[..., bool]] = {
    "nested more than 1,000 levels deep": _is_deep,
    r"not UTF-8 at byte (\d+)": _is_utf8_up_to,
    "begins with a byte order mark": lambda message: message.payload.startswith(b"\xef\xbb\xbf"),
    "not a JSON object": _has_no_object,
    r"half a surrogate pair: (\\u\w{4})": lambda message, half: half in _text(message),
    "more after the JSON object": _has_more,
    "message key (.*) is not the id: (-?[0-9]+)": _has_other_key,
    "fails (.+)": _fails,
}
"""Reasons about a message as a whole, and the checks that they are true."""
