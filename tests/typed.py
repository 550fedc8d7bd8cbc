"""What a topic with fields of all types takes, in plain Python, and random payloads for it."""

import json
import random
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Context, Decimal
from typing import Any

DDL = """
    id BIGINT NOT NULL, pieces INT, weight DECIMAL(6, 2) NOT NULL, share DECIMAL(3, 3), worth DECIMAL(38, 10),
    sent TIMESTAMP_MILLIS, seen TIMESTAMP_MICROS, arrived TIMESTAMP, due DATE, state ENUM('NEW', 'SENT', 'LOST'),
    address STRUCT<zip: BIGINT NOT NULL, city: STRING, geo: STRUCT<lat: DOUBLE NOT NULL, at: TIMESTAMP_MILLIS>>,
    lines ARRAY<STRUCT<sku: STRING NOT NULL, price: DECIMAL(6, 2), tags: ARRAY<STRING>, states: ARRAY<ENUM('NEW', 'SENT')>>>,
    numbers ARRAY<BIGINT>, days ARRAY<ARRAY<DATE>>,
    limits MAP<STRING, DECIMAL(6, 2)>, stops MAP<STRING, STRUCT<km: INT NOT NULL, due: DATE>>
"""  # noqa: E501


class Number(str):
    """A number of JSON, as it is written."""


class Pairs(list[tuple[str, Any]]):
    """A JSON object, with all values of each name."""


@dataclass
class Type:
    """A type of fields: which JSON texts it takes, as good ones and bad ones to draw from, and how it reads a token."""

    good: tuple[str, ...]
    bad: tuple[str, ...]
    is_shaped: Callable[[Any], bool]
    read: Callable[[Any], Any]
    """Raises ValueError for a token that does not fit."""


def refuse(token: object) -> Any:
    raise ValueError(token)


def is_whole(bits: int) -> Callable[[Any], bool]:
    limits = range(-(2 ** (bits - 1)), 2 ** (bits - 1))
    return lambda token: (
        isinstance(token, Number) and re.fullmatch("-?[0-9]+", token) is not None and int(token) in limits
    )


def is_any(_: object) -> bool:
    return True


def decimal(precision: int, scale: int, good: tuple[str, ...], bad: tuple[str, ...]) -> Type:
    def read(token: Any) -> Decimal:
        if not isinstance(token, str) or not re.fullmatch(r"-?(0|[1-9][0-9]*)([.][0-9]+)?([eE][+-]?[0-9]+)?", token):
            raise ValueError(token)
        value = Decimal(token)
        if value.adjusted() > 100:
            raise ValueError(token)
        fitting = value.quantize(Decimal(1).scaleb(-scale), context=Context(prec=2000))
        if fitting != value or abs(value) >= 10 ** (precision - scale):
            raise ValueError(token)
        return fitting

    return Type(good, bad, is_any, read)


def since_1970(unit: int, good: tuple[str, ...], bad: tuple[str, ...]) -> Type:
    def read(token: Number) -> datetime:
        try:
            return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=int(token) * unit)
        except OverflowError:
            raise ValueError(token) from None

    return Type(good, bad, is_whole(64), read)


def read_date(token: Any) -> date:
    if isinstance(token, Number):
        return (datetime(1970, 1, 1, tzinfo=UTC) + _days(token)).date()
    if isinstance(token, list):
        return date(*map(int, token)) if len(token) == 3 and all(map(is_whole(32), token)) else refuse(token)
    return date.fromisoformat(token) if re.fullmatch(r"\d{4}-\d\d-\d\d", str(token), re.ASCII) else refuse(token)


def _days(token: Number) -> timedelta:
    return timedelta(days=int(token)) if -719_162 <= int(token) <= 2_932_896 else refuse(token)


def read_timestamp(token: Any) -> datetime:
    found = re.fullmatch(
        r"(\d{4}-\d\d-\d\d)[Tt ](\d\d:\d\d)(:\d\d)?(?:[.,](\d+))?(?:[zZ]|([+-])(\d\d):?(\d\d)?)(\[[^]]+\])?",
        str(token),
        re.ASCII,
    )
    if not found or isinstance(token, list) or (found[4] and not found[3]):
        raise ValueError(token)
    day, clock, seconds, fraction, sign, hours, minutes, _ = found.groups()
    offset = timedelta(hours=int(hours or 0), minutes=int(minutes or 0))
    if int(minutes or 0) > 59 or offset > timedelta(hours=18):
        raise ValueError(token)
    micros = int((fraction or "").ljust(6, "0")[:6])
    local = datetime.fromisoformat(f"{day}T{clock}{seconds or ':00'}Z") + timedelta(microseconds=micros)
    try:
        return local + offset if sign == "-" else local - offset
    except OverflowError:
        raise ValueError(token) from None


def read_double(token: Any) -> float:
    value = float(token)
    return value if abs(value) < float("inf") else refuse(token)


def read_text(token: Any) -> str:
    """A string, or any other value as its JSON text."""
    return str(token) if isinstance(token, str) else _json_text(token)


def _json_text(token: Any) -> str:
    match token:
        case Number():
            return token
        case Pairs():
            return f"{{{','.join(f'{json.dumps(name)}:{_json_text(each)}' for name, each in token)}}}"
        case list():
            return f"[{','.join(map(_json_text, token))}]"
    return json.dumps(token)


def one_of(*values: str) -> Type:
    good = tuple(f'"{value}"' for value in values)
    return Type(good, ('"new"', '"NEW "', '""', "1"), is_any, lambda token: token if token in values else refuse(token))


def is_double(token: Any) -> bool:
    return isinstance(token, Number)


LONG = Type(
    ("0", "-0", "-1", "9223372036854775807", "-9223372036854775808"),
    ('"1"', "1.0", "1e0", "9223372036854775808", "123456789012345678901234567890123456789012"),
    is_whole(64),
    int,
)
INT = Type(("0", "2147483647", "-2147483648"), ('"1"', "1.5", "2147483648"), is_whole(32), int)
DOUBLE = Type(("1", "1.5", "-1e-5", "123456789012345678901234567890"), ('"1"', "1e400"), is_double, read_double)
TEXT = Type(('"a"', '"Zoë"', '""', '"1"'), (), is_any, read_text)
SMALL = decimal(
    6,
    2,
    (
        "1",
        "-0",
        "0.10",
        "9999.99",
        "-9999.99",
        "1.100",
        "6E+2",
        "1e1",
        "123.456000e1",
        '"1.50"',
        '"7"',
        '"1e2"',
        '"1.' + "0" * 50 + '"',
    ),
    (
        "1.005",
        "10000",
        "1e5",
        "1e-3",
        "1e999999999",
        '"+1"',
        '" 1"',
        '"1 "',
        '"01"',
        '".5"',
        '"1."',
        '""',
        '"1.001"',
        '"1\\n"',
    ),
)
SHARE = decimal(3, 3, ("0.125", "-0.999", "0", "0.1"), ("1", "0.1234", '"1.0"'))
WORTH = decimal(
    38,
    10,
    ("12345678901234567890123.45", '"1234567890123456789012345678.0123456789"', "0.0000000001", "1." + "0" * 39),
    ("0.00000000001", "12345678901234567890123456789", "1.0000000000000000000000000000001"),
)
MILLIS = since_1970(
    1_000,
    ("0", "-1", "1767225600123", "253402300799999", "-62135596800000"),
    ("253402300800000", "-62135596800001", "9223372036854775807", "1.5", '"0"', '"2026-01-31T12:00:00Z"'),
)
MICROS = since_1970(
    1,
    ("0", "-1", "1767225600123456", "253402300799999999", "-62135596800000000"),
    ("253402300800000000", "-62135596800000001", "9223372036854775807", "1.5", '"0"'),
)
TIMESTAMP = Type(
    (
        *('"2026-01-31T12:00:00Z"', '"2026-01-31T12:00:00.123456+05:30"', '"2026-01-31T12:00:00.1000000-18:00"'),
        *('"0001-01-01T00:00:00Z"', '"9999-12-31T23:59:59.999999Z"', '"2024-02-29T23:59:59-00:00"'),
        # as Java, C#, Go, PostgreSQL and others write it
        *('"2026-01-31T12:00Z"', '"2026-01-31T12:00:00+0000"', '"2026-01-31 12:00:00.5+01"', '"2026-01-31t12:00:00z"'),
        *('"2026-01-31T12:00:00.1234567Z"', '"2026-01-31T12:00:00.123456789+01:00[Europe/Berlin]"'),
    ),
    (
        # no offset, no minutes, a fraction of a minute
        *('"2026-01-31T12:00:00"', '"2026-01-31T12Z"', '"2026-01-31T12:00.5Z"'),
        # no such day, hour, second or offset
        *('"2026-02-30T12:00:00Z"', '"2026-01-31T24:00:00Z"', '"2026-01-31T12:00:60Z"', '"2026-01-31T12:00:00+18:01"'),
        # in UTC before the year 1 and after 9999, the year 0, milliseconds
        *('"0001-01-01T00:00:00+01:00"', '"9999-12-31T23:59:59-01:00"', '"0000-12-31T00:00:00Z"', "1767225600123"),
        # no such offset, a date, too long a year, a word, too short a month
        *('"2026-01-31T12:00:00+05:60"', '"2026-01-31"', '"12026-01-31T12:00:00Z"', '"today"', '"2026-1-31T12:00:00Z"'),
        # an empty fraction, a space too many, another way to say UTC
        *('"2026-01-31T12:00:00.Z"', '"2026-01-31T12:00:00Z "', '"2026-01-31T12:00:00 UTC"'),
    ),
    is_any,
    read_timestamp,
)
DATE = Type(
    ('"2026-01-31"', '"2024-02-29"', '"0001-01-01"', '"9999-12-31"', "20484", "-719162", "[2026,1,31]"),
    (
        '"2026-02-30"',
        '"2026-1-31"',
        '"0000-01-01"',
        '"2026-01-31 "',
        '"2026-01-31T00:00:00Z"',
        "20260131",
        '""',
        "[2026,2,30]",
        "[2026,1]",
    ),
    is_any,
    read_date,
)

Spec = Type | dict[str, Any] | list[Any] | tuple[Any]
"""A type of fields, or an object by name (those with `!` are required), a list, or a map (a tuple) of them."""
FIELDS: dict[str, Spec] = {
    "id!": LONG,
    "pieces": INT,
    "weight!": SMALL,
    "share": SHARE,
    "worth": WORTH,
    "sent": MILLIS,
    "seen": MICROS,
    "arrived": TIMESTAMP,
    "due": DATE,
    "state": one_of("NEW", "SENT", "LOST"),
    "address": {"zip!": LONG, "city": TEXT, "geo": {"lat!": DOUBLE, "at": MILLIS}},
    "lines": [{"sku!": TEXT, "price": SMALL, "tags": [TEXT], "states": [one_of("NEW", "SENT")]}],
    "numbers": [LONG],
    "days": [[DATE]],
    "limits": (SMALL,),
    "stops": ({"km!": INT, "due": DATE},),
}
OTHERS = ("true", '"x"', '"{}"', "[]", "{}", "[1]", '[{"a":1}]', '{"a":1}', "7", "1.5")


def read(payload: str) -> tuple[dict[str, Any], set[str]]:
    """The values of the fields, and the paths of those that do not fit."""
    tokens = json.loads(payload, parse_int=Number, parse_float=Number, object_pairs_hook=Pairs)
    wrong: set[str] = set()
    return _read_object(FIELDS, tokens, "", wrong), wrong


def _read(spec: Spec, token: Any, path: str, wrong: set[str]) -> Any:
    if not _is_shaped(spec, token):
        wrong.add(path)
        return None
    match spec:
        case _ if token is None:
            return None
        case dict():
            return _read_object(spec, token, path, wrong)
        case list():
            return [_read(spec[0], each, f"{path}[{place}]", wrong) for place, each in enumerate(token)]
        case tuple():
            if len(dict(token)) < len(token):
                wrong.add(path)
            return {key: _read(spec[0], each, f"{path}['{key}']", wrong) for key, each in token}
    try:
        return spec.read(token)
    except ValueError:
        wrong.add(path)


def _read_object(spec: dict[str, Any], pairs: Pairs, path: str, wrong: set[str]) -> dict[str, Any]:
    """If a field is there more than once, all of its values must fit, and the last one counts."""
    given, values = dict(pairs), {}
    for marked, kind in spec.items():
        name = marked.rstrip("!")
        place = f"{path}.{name}".lstrip(".")
        values[name] = _read(kind, given.get(name), place, wrong)
        of_each: set[str] = set()
        for field, each in pairs:
            if field == name:
                _read(kind, each, place, of_each)
        if of_each or (marked.endswith("!") and given.get(name) is None):
            wrong.add(place)
    return values


def _is_shaped(spec: Spec, token: Any) -> bool:
    """Whether a value has the right JSON type."""
    match spec:
        case _ if token is None:
            return True
        case Type():
            return spec.is_shaped(token)
        case list():
            return isinstance(token, list) and not isinstance(token, Pairs)
    return isinstance(token, Pairs)


def payloads(seed: int, count: int, *, broken: float) -> Iterator[str]:
    """Random JSON objects for the fields, the same ones for the same seed. `broken` is how often a value is odd."""
    drawn = random.Random(seed)
    for _ in range(count):
        yield _draw_object(FIELDS, drawn, broken * drawn.choice((0, 1, 1)))


def _draw(spec: Spec, drawn: random.Random, broken: float) -> str:
    if drawn.random() < broken:
        others = spec.bad if isinstance(spec, Type) and spec.bad else OTHERS
        return drawn.choice((*others, *OTHERS, "null") if spec is not TEXT else (*TEXT.good, "null"))
    match spec:
        case Type():
            return drawn.choice(spec.good)
        case list():
            return f"[{','.join(_draw(spec[0], drawn, broken) for _ in range(drawn.randrange(4)))}]"
        case tuple():
            keys = [f"k{number}" for number in range(drawn.randrange(4))]
            keys += keys[:1] * (drawn.random() < broken)
            return f"{{{','.join(f'{json.dumps(key)}:{_draw(spec[0], drawn, broken)}' for key in keys)}}}"
    return _draw_object(spec, drawn, broken)


def _draw_object(spec: dict[str, Any], drawn: random.Random, broken: float) -> str:
    names = [name for name in spec if drawn.random() > (broken if name.endswith("!") else 0.2)]
    names += [drawn.choice(list(spec))] * (drawn.random() < broken) + ["more"] * (drawn.random() < broken)
    pairs = (f'"{name.rstrip("!")}":{_draw(spec.get(name, TEXT), drawn, broken)}' for name in names)
    return f"{{{','.join(pairs)}}}"
