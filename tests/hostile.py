"""Hostile messages: named ones in `CORPUS`, and any number of random ones from `hostile_messages`.

Each knows from the oracle whether it is `malformed`. If so, it must end in quarantine, else it must be accepted.
"""

import json
import random
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from typing import Any, NamedTuple

from tests.messages import START
from tests.oracle import LAST_TIME, Message, Position, is_malformed, moment


class Hostile(NamedTuple):
    """What a producer sends. A `payload` of None is a tombstone. `event_time` is in epoch milliseconds, 0 for none."""

    name: str
    topic: str
    payload: bytes | None
    key: str | None = None
    properties: Mapping[str, str] = {}
    event_time: int = 0

    def message(self, place: int = 0, published: datetime = START) -> Message:
        """The message as it lands. An event time after the year 9999 counts as none."""
        event_time = moment(self.event_time) if 0 < self.event_time <= LAST_TIME else None
        return Message(self.topic, Position(0, 7, place, 0), self.key, self.payload, event_time, published)

    @property
    def malformed(self) -> bool:
        return is_malformed(self.message())


GOOD: Mapping[str, Mapping[str, Any]] = {
    "users": {
        "id": 1,
        "firstName": "Ada",
        "lastName": "Löwe",
        "emailAddress": "ada@example.com",
        "createdAt": 1_767_225_600_000,
        "deletedAt": -1,
        "mergedAt": -1,
        "parentUserId": -1,
    },
    "items": {
        "id": 1,
        "createdAt": 1_767_225_600_000,
        "adjective": "red",
        "category": "toys",
        "modifier": None,
        "name": "pie",
        "price": 1.5,
    },
    "orders": {
        "invoiceId": 1,
        "lineItemId": 1,
        "userId": 1,
        "itemId": 1,
        "itemName": "pie",
        "itemCategory": "toys",
        "price": 1.5,
        "createdAt": 1_767_225_600_000,
        "paidAt": 1_767_225_660_000,
    },
}


def written(value: object) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def _item(more: str | bytes = b"", *, id: str = "1", time: str = "0", price: str = "2") -> bytes:
    """The payload of an item: the required fields, as they are written, and then `more`, which may repeat one."""
    text = more.encode() if isinstance(more, str) else more
    return f'{{"id":{id},"createdAt":{time},"price":{price}'.encode() + (b"," + text if text else b"") + b"}"


_SOUND = _item()

_ITEMS: Mapping[str, bytes] = {
    "a good one": _SOUND,
    # Not a single JSON object
    "empty": b"",
    "a space": b" ",
    "a line feed": b"\n",
    "a NUL": b"\0",
    "null": b"null",
    "null with spaces": b" null ",
    "true": b"true",
    "a number": b"12",
    "a string": b'"pie"',
    "a list": b"[]",
    "an object in a list": b"[" + _SOUND + b"]",
    "an empty object": b"{}",
    "cut off in a name": _SOUND[:12],
    "cut off in a value": _SOUND[:-2],
    "cut off before the brace": _SOUND[:-1],
    "two objects": _SOUND + _SOUND,
    "two objects in lines": _SOUND + b"\n" + _SOUND + b"\n",
    "a brace too many": _SOUND + b"}",
    "words after it": _SOUND + b" and more",
    "a NUL after it": _SOUND + b"\0",
    "a NUL before it": b"\0" + _SOUND,
    "spaces around it": b" \t\r\n" + _SOUND + b" \t\r\n",
    "a vertical tab after it": _SOUND + b"\x0b",
    "a no-break space before it": "\u00a0".encode() + _SOUND,
    "single quotes": _SOUND.replace(b'"', b"'"),
    "names without quotes": _SOUND.replace(b'"', b""),
    "a trailing comma": _SOUND[:-1] + b",}",
    "a comment in it": _SOUND[:-1] + b"/* c */}",
    "a comment after it": _SOUND + b"//",
    "a comment before it": b"#\n" + _SOUND,
    # Bytes that are not valid text, or look like it
    "a byte order mark": b"\xef\xbb\xbf" + _SOUND,
    "UTF-16": _SOUND.decode().encode("utf-16"),
    "UTF-16 without a mark": _SOUND.decode().encode("utf-16-le"),
    "UTF-32": _SOUND.decode().encode("utf-32"),
    "no UTF-8 in a value": _item(b'"name":"pi\xffe"'),
    "no UTF-8 in a field nobody reads": _item(b'"x":"\xff"'),
    "no UTF-8 in a name": _SOUND.replace(b'"id"', b'"i\xff"'),
    "no UTF-8 in a name nobody reads": _item(b'"\xc3":1'),
    "no UTF-8 after a replacement character": _item(b'"name":"\xef\xbf\xbd\xff"'),
    "a replacement character": _item('"name":"\ufffd"'),
    "overlong UTF-8": _item(b'"name":"\xc0\xaf"'),
    "a surrogate in UTF-8": _item(b'"name":"\xed\xa0\x80"'),
    "beyond Unicode": _item(b'"name":"\xf4\x90\x80\x80"'),
    "half a character": _item(b'"name":"\xf0\x9f\x98"'),
    "Latin-1": _SOUND[:-1] + ',"name":"Löwe"}'.encode("latin-1"),
    "half a surrogate pair": _item(r'"name":"\ud800"'),
    "the other half": _item(r'"name":"\uDC00"'),
    "a pair the wrong way round": _item(r'"name":"\udc00\ud800"'),
    "a pair with a backslash between": _item(r'"name":"\ud83d\\\ude00"'),
    "three halves": _item(r'"name":"\ud83d\ud83d\ude00"'),
    "half a pair nobody reads": _item(r'"x":["\ud800"]'),
    "half a pair in a name": _item(r'"\ud800":1'),
    "a surrogate pair": _item(r'"name":"\ud83d\ude00"'),
    "a backslash, then letters": _item(r'"name":"\\ud800"'),
    "an escaped NUL": _item(r'"name":"\u0000"'),
    "a NUL in a string": _item(b'"name":"\0"'),
    "a line feed in a string": _item('"name":"a\nb"'),
    "a tab in a string": _item('"name":"a\tb"'),
    "an unknown escape": _item(r'"name":"\x"'),
    "a short escape": _item(r'"name":"\u12"'),
    "other scripts": _item('"name":"\u202egnp.exe\u202c 👩‍👩‍👧‍👦 Ａ１ ı̇ ß ﷽"'),
    "separators of lines": _item('"name":"\u2028\u2029\u0085\x7f"'),
    # Numbers
    "a long as text": _item(id='"1"'),
    "a long with a fraction": _item(id="1.0"),
    "a long with an exponent": _item(id="1e0"),
    "a boolean for a long": _item(id="true"),
    "a list for a long": _item(id="[1]"),
    "an object for a long": _item(id='{"id":1}'),
    "null for a long": _item(id="null"),
    "the last time": _item(time="253402300799999"),
    "after the last time": _item(time="253402300800000"),
    "the first time": _item(time="-62135596800000"),
    "before the first time": _item(time="-62135596800001"),
    "a price as text": _item(price='"2.5"'),
    "NaN": _item(price="NaN"),
    "NaN as text": _item(price='"NaN"'),
    "Infinity": _item(price="-Infinity"),
    "Infinity as text": _item(price='"Infinity"'),
    "a double too great": _item(price="1e400"),
    "a double far too small": _item(price="-1e400"),
    "a double as an integer too great": _item(price="1" + "0" * 400),
    "the greatest double": _item(price="1.7976931348623157e308"),
    "a double next to zero": _item(price="1e-400"),
    "an exponent of many digits": _item(price="1e999999999"),
    "many digits": _item(price="0." + "1" * 500),
    "1,000 digits": _item('"x":-' + "1" * 1000),
    "1,001 digits": _item('"x":' + "1" * 1001),
    "a fraction of 1,000 digits": _item('"x":1.' + "1" * 999),
    "a fraction of 1,001 digits": _item('"x":1.' + "1" * 1000),
    "5,000 digits": _item('"x":' + "1" * 5000),
    "a leading zero": _item('"x":01'),
    "a plus": _item('"x":+1'),
    "a point first": _item('"x":.5'),
    "a point last": _item('"x":5.'),
    "a minus alone": _item('"x":-'),
    "hexadecimal": _item('"x":0x10'),
    "half a word": _item('"x":tru'),
    "too great where nobody reads": _item('"x":1e400'),
    # Fields
    "another field": _item('"x":{"id":3,"more":["}"]}'),
    "an empty name": _item('"":1'),
    "names with dots and spaces": _item('"a.b":1," id":2,"id ":3'),
    "a name in capitals": _SOUND.replace(b'"id"', b'"ID"'),
    "an escaped name": _SOUND.replace(b'"id"', rb'"\u0069d"'),
    "a number for a string": _item('"name":5'),
    "a boolean for a string": _item('"name":true'),
    "an object for a string": _item('"name":{"a":[1,null]}'),
    "a field twice, alike": _item('"price":2'),
    "a field twice, other": _item('"price":3'),
    "a field twice, first of the wrong type": _item(price='"x","price":2'),
    "a field twice, then of the wrong type": _item('"price":"x"'),
    "a field twice, then null": _item('"price":null'),
    "a field twice, first null": _item(price='null,"price":2'),
    "the key twice": _item('"id":2'),
    "another field twice": _item('"x":1,"x":"a"'),
    "a field twice, once escaped": _item(r'"pr\u0069ce":3'),
    "a name of 50,000": _item('"' + "n" * 50_000 + '":1'),
    "a name of 50,001": _item('"' + "n" * 50_001 + '":1'),
    "a name of 60,000": _item('"' + "n" * 60_000 + '":1'),
    "a string of 60,000": _item('"x":"' + "n" * 60_000 + '"'),
    "a string of 1 MB": _item('"name":"' + "n" * 1_000_000 + '"'),
    "a string of 1 MB of quotes": _item('"name":"' + r"\"" * 500_000 + '"'),
    "a string of 1 MB of backslashes": _item('"name":"' + "\\" * 1_000_000 + '"'),
    "a string of braces": _item('"name":"' + "}{" * 50_000 + '"'),
    "100,000 braces": b"}" * 100_000,
    "10,000 fields": _item(",".join(f'"f{number}":{number}' for number in range(10_000))),
    "1,000 levels": _item('"x":' + "[" * 999 + "]" * 999),
    "1,001 levels": _item('"x":' + "[" * 1000 + "]" * 1000),
    "10,000 levels": _item('"x":' + "[" * 10_000 + "]" * 10_000),
    "1,001 levels and 1,001 digits": _item('"x":' + "[" * 1000 + "]" * 1000 + ',"y":' + "1" * 1001),
    "10,000 levels of objects": _item('"x":' + '{"a":' * 10_000 + "1" + "}" * 10_000),
    "10,000 levels that do not end": _item('"x":' + "[" * 10_000),
    "brackets in a string": _item('"x":"' + "[" * 10_000 + '"'),
}
"""Payloads that are sent with the key 1."""

# What is not the text of the id 1.
_ODD_KEYS = ("+1", "0001", "1\0", " 1", "1 ", "1\n", "1.0", "1e0", "0x1", "1L", "x", "", "１", "２", "k" * 10_000)
_GONE = (  # by tombstones: BIGINTs, then other texts
    *("1", "-7", "0", "9223372036854775807", "-9223372036854775808"),
    *("9223372036854775808", "+1", "0001", "1\0", " 1", "1 ", "1\n", "1.0", "-0", "１", "x", "", "null", None),
)

_KEYED: Mapping[str, tuple[bytes | None, str | None]] = {
    "without a key": (_SOUND, None),
    "minus zero": (_item(id="-0", price="-0.0"), "0"),
    "the least long": (_item(id="-9223372036854775808"), "-9223372036854775808"),
    "the greatest long": (_item(id="9223372036854775807"), "9223372036854775807"),
    "a long too great": (_item(id="9223372036854775808"), "9223372036854775808"),
    "an empty key for zero": (_item(id="0"), ""),
    "minus zero as a key": (_item(id="0"), "-0"),
    **{f"the key {key!r}": (_SOUND, key) for key in _ODD_KEYS},
    **{f"a tombstone of {key!r}": (None, key) for key in _GONE},
}

_ORDERS: Mapping[str, Mapping[str, Any]] = {
    "a good order": {},
    "an order for nothing": {"price": 0},
    "an order that pays you": {"price": -0.5},
    "an order of all there is": {"price": 1e15},
    "an order paid before": {"paidAt": 0},
    "an order not paid": {"paidAt": None},
    "an order without a user": {"userId": None},
    "an order of the year 1": {"createdAt": -62_135_596_800_000},
    "an order of the year 9999": {"createdAt": 253_402_300_799_999, "paidAt": None},
    "an order of the year 10000": {"createdAt": 253_402_300_800_000, "paidAt": None},
    "an order of great numbers": {"invoiceId": 2**63 - 1, "lineItemId": -(2**63)},
}

_PROPERTIES: Mapping[str, Mapping[str, str]] = {
    "no name": {"": "x"},
    "no value": {"x": ""},
    "a long name": {"n" * 10_000: "x"},
    "a long value": {"x": "v" * 100_000},
    "odd names": {"a.b": "1", "a b": "2", "a`b": "3", "'": "4", "\0": "5", "\u202e": "6", "👩‍👩‍👧‍👦": "7"},
    "many": {str(number): "x" for number in range(1_000)},
}

_EVENT_TIMES = (1, 253_402_300_799_999, 253_402_300_800_000, 2**63 - 1)

CORPUS: tuple[Hostile, ...] = (
    *(Hostile(name, "items", payload, "1") for name, payload in _ITEMS.items()),
    *(Hostile(name, "items", payload, key) for name, (payload, key) in _KEYED.items()),
    *(Hostile(name, "orders", written({**GOOD["orders"], **fields})) for name, fields in _ORDERS.items()),
    Hostile("an order that is deleted", "orders", None, "1"),
    *(Hostile(f"properties: {name}", "items", _SOUND, "1", each) for name, each in _PROPERTIES.items()),
    *(Hostile(f"the event time {time}", "items", _SOUND, "1", {}, time) for time in _EVENT_TIMES),
)


def hostile_messages(seed: int, count: int) -> Iterator[Hostile]:
    """`count` messages of all topics, the same ones for the same seed. Most are changed, once or more often."""
    drawn = random.Random(seed)
    for number in range(count):
        yield _draw(drawn, number)


def _draw(drawn: random.Random, number: int) -> Hostile:
    topic = drawn.choice(("users", "items", "orders", "orders"))
    fields = dict(GOOD[topic])
    key = _good_values(drawn, topic, fields, number)
    properties: Mapping[str, str] = {}
    event_time = drawn.choice((0, 1_767_225_600_000 + drawn.randrange(10**9)))
    names, payload = [], b""
    for _ in range(drawn.choice((0, 1, 1, 1, 2))):
        change = drawn.choice(FIELD_CHANGES)
        change(drawn, fields)
        names.append(change.__name__)
    payload = written(fields) if drawn.random() < 0.8 else json.dumps(fields).encode()
    for _ in range(drawn.choice((0, 0, 0, 1, 1, 2))):
        damage = drawn.choice(DAMAGES)
        payload = damage(drawn, payload or b" ")
        names.append(damage.__name__)
    sent: bytes | None = payload
    if drawn.random() < 0.05:
        sent = None
        names.append("tombstone")
    if drawn.random() < 0.1:
        key = drawn.choice(_KEYS) if drawn.random() < 0.5 else _odd(drawn, key)
        names.append("key")
    if drawn.random() < 0.03:
        properties = drawn.choice(list(_PROPERTIES.values()))
        names.append("properties")
    if drawn.random() < 0.03:
        event_time = drawn.choice(_EVENT_TIMES)
        names.append("event time")
    return Hostile(f"{number}: {', '.join(names) or 'good'}", topic, sent, key, properties, event_time)


def _good_values(drawn: random.Random, topic: str, fields: dict[str, Any], number: int) -> str | None:
    """Give the fields random values that are sound; returns the message's key."""
    fields["createdAt"] = 1_767_225_600_000 + drawn.randrange(10**9)
    if topic == "orders":
        ids = {
            "invoiceId": number // 5,
            "lineItemId": number,
            "userId": drawn.randrange(50),
            "itemId": drawn.randrange(50),
        }
        fields |= ids | {"paidAt": drawn.choice((None, fields["createdAt"] + 60_000))}
        return drawn.choice((None, str(number)))
    fields["id"] = drawn.randrange(50)
    if topic == "users" and drawn.random() < 0.2:
        fields |= {"mergedAt": fields["createdAt"], "parentUserId": drawn.randrange(50)}
    return drawn.choice((None, str(fields["id"]), str(fields["id"])))


_KEYS = (
    *(None, "", "0", "1", "-1", "x", "null", "NaN", "1e1", "9223372036854775808"),
    *("k" * 5_000, "👩‍👩‍👧‍👦", "\0", "\u202e1"),
)
_NUMBERS = (
    *(0, -0.0, 1, -1, 1.0, 0.1, 2**31, 2**53 + 1),
    *(2**63 - 1, 2**63, -(2**63), -(2**63) - 1, 10**30, 1e15, 1e308, 5e-324),
    *(253_402_300_799_999, 253_402_300_800_000, -62_135_596_800_000, -62_135_596_800_001),
)
_STRINGS = (
    *("", " ", "null", "NaN", "0", "-1", "1e5", "{}", "[]", "}", '"', "\\", "\\u0000"),
    *("\0", "\n", "\x7f", "\ufeff", "\ufffd", "\u202e", "\u2028", "👩‍👩‍👧‍👦", "e\u0301", "ﷺ" * 100),
    *("' OR 1=1 --", "; DROP TABLE users", "${x}", "<b>", "../..", "n" * 3_000),
)


def _odd(drawn: random.Random, key: str | None) -> str:
    """A key that a lax reader takes for the same."""
    odd = ("+{}", "0{}", "{}\0", " {}", "{} ", "{}\n", "{}.0", "{}L", "{}e0", "'{}'", "-{}")
    return drawn.choice(odd).format(key or "1")


def other_type(drawn: random.Random, fields: dict[str, Any]) -> None:
    others: tuple[Any, ...] = (None, True, False, "", "1", 1, 1.5, [], {}, [1], {"a": 1}, [[]], [None])
    fields[drawn.choice(list(fields))] = drawn.choice(others)


def odd_number(drawn: random.Random, fields: dict[str, Any]) -> None:
    numbers = [name for name, value in fields.items() if isinstance(value, int | float)] or list(fields)
    fields[drawn.choice(numbers)] = drawn.choice(_NUMBERS)


def odd_string(drawn: random.Random, fields: dict[str, Any]) -> None:
    strings = [name for name, value in fields.items() if isinstance(value, str)] or list(fields)
    fields[drawn.choice(strings)] = drawn.choice(_STRINGS)


def without(drawn: random.Random, fields: dict[str, Any]) -> None:
    del fields[drawn.choice(list(fields))]


def renamed(drawn: random.Random, fields: dict[str, Any]) -> None:
    name = drawn.choice(list(fields))
    change: Callable[[str], str] = drawn.choice(
        (str.upper, str.title, lambda text: f" {text}", lambda text: text + "\0")
    )
    fields[change(name)] = fields.pop(name)


def more(drawn: random.Random, fields: dict[str, Any]) -> None:
    depth = drawn.choice((1, 3, 50))
    value: Any = drawn.choice((*_NUMBERS, *_STRINGS))
    for _ in range(depth):
        value = drawn.choice(([value], {"id": value}))
    fields[drawn.choice(("x", "", "a.b", "_unparsed", "_value", "message", "é" * 50))] = value


def huge(drawn: random.Random, fields: dict[str, Any]) -> None:
    fields["x"] = drawn.choice(("n", "}", "\\", "é", '"')) * drawn.choice((1_000, 20_000))


FIELD_CHANGES = (other_type, odd_number, odd_number, odd_string, odd_string, without, renamed, more, huge)


def flipped(drawn: random.Random, payload: bytes) -> bytes:
    place = drawn.randrange(len(payload))
    return payload[:place] + bytes([payload[place] ^ (1 << drawn.randrange(8))]) + payload[place + 1 :]


def replaced(drawn: random.Random, payload: bytes) -> bytes:
    place = drawn.randrange(len(payload))
    return payload[:place] + bytes([drawn.randrange(256)]) + payload[place + 1 :]


def cut(drawn: random.Random, payload: bytes) -> bytes:
    return payload[: drawn.randrange(len(payload))]


def inserted(drawn: random.Random, payload: bytes) -> bytes:
    text = (b"\\", b'"', b"}", b"{", b",", b"1", b".5", b"e9")
    tokens = (b"\xff", b"\xc3", b"\xed\xa0\x80", rb"\ud800", rb"\ude00", b"\0", *text)
    place = drawn.randrange(len(payload) + 1)
    return payload[:place] + drawn.choice(tokens) + payload[place:]


def followed(drawn: random.Random, payload: bytes) -> bytes:
    others = (b"{}", b" {}", b"\n" + payload, b"//}", b'],["END OF PAYLOAD"')
    ends = (b" ", b"\n", b"\r\n\t ", b"\0", b"\x0b", b"x", b"}", b",", *others)
    return payload + drawn.choice(ends)


def preceded(drawn: random.Random, payload: bytes) -> bytes:
    return drawn.choice((b" ", b"\n", b"\xef\xbb\xbf", b"\0", b"x", b"[", b"{}", b"null", b"//\n")) + payload


def twice(drawn: random.Random, payload: bytes) -> bytes:
    """Append a field that is usually there already."""
    values = (b"1", b'"x"', b"null", b"1.5", b"true", b"2", b"{}")
    names = (b"id", b"price", b"createdAt", b"name", b"userId", b"x")
    return payload[:-1] + b',"' + drawn.choice(names) + b'":' + drawn.choice(values) + b"}"


def deep(drawn: random.Random, payload: bytes) -> bytes:
    levels = drawn.choice((10, 500, 998, 1_005, 3_000))
    return payload[:-1] + b',"deep":' + b"[" * levels + b"]" * levels + b"}"


def digits(drawn: random.Random, payload: bytes) -> bytes:
    return payload[:-1] + b',"digits":' + b"7" * drawn.choice((30, 400, 1_000, 1_001, 4_500)) + b"}"


def escaped(drawn: random.Random, payload: bytes) -> bytes:
    """Append half a surrogate pair, or what looks like it."""
    halves, pairs = (rb"\ud800", rb"\udfff"), (rb"\ud83d\ude00", rb"\\ud800", rb"\ud83d\\ude00")
    texts = (*halves, *pairs, rb"\u0000", rb"\uD83D\uDE00\uDE00")
    return payload[:-1] + b',"escaped":"' + drawn.choice(texts) + b'"}'


def other_encoding(drawn: random.Random, payload: bytes) -> bytes:
    encoding = drawn.choice(("utf-16", "utf-16-be", "utf-32", "latin-1"))
    return payload.decode("latin-1").encode(encoding)


def nothing(drawn: random.Random, payload: bytes) -> bytes:
    return drawn.choice((b"", b" ", b"\n", b"\0", b"null", b"{}", b"[]", b"0", b'""'))


DAMAGES = (
    *(flipped, replaced, cut, inserted, inserted, followed, preceded, twice, twice),
    *(deep, digits, escaped, other_encoding, nothing),
)
