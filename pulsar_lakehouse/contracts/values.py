"""Reads the values of payloads as the types of fields, and says what is wrong with those that do not fit.

Each encoding parses a payload into Python's values: None, booleans, numbers, texts, bytes, lists, and dicts or `Pairs`
for objects. Here is how each declared type reads them. Times become whole numbers, as Arrow takes them.
"""

import json
import re
from base64 import b64decode
from collections.abc import Callable, Iterable
from datetime import UTC, date, datetime, timedelta
from decimal import Context, Decimal, InvalidOperation
from typing import Any

from pyspark.sql import types as T

from pulsar_lakehouse.contracts.types import Enum, TimestampMicros, TimestampMillis, type_name

MILLIS = (-62_135_596_800_000, 253_402_300_799_999)
MICROS = (-62_135_596_800_000_000, 253_402_300_799_999_999)
DAYS = (-719_162, 2_932_896)
"""The years 1 to 9999, the range of times in SQL and Python, since 1970."""
BITS = {T.IntegerType: 32, T.LongType: 64}
NUMBER = re.compile(r"-?(0|[1-9][0-9]*)([.][0-9]+)?([eE][+-]?[0-9]+)?")
TIME = re.compile(
    r"([0-9]{4}-[0-9]{2}-[0-9]{2})[Tt ]([0-9]{2}:[0-9]{2}(?::[0-9]{2}(?:[.,]([0-9]+))?)?)"
    r"([Zz]|[+-][0-9]{2}(?::?[0-9]{2})?)(?:\[[^]]+\])?"
)
"""A time in ISO 8601 and RFC 3339, with the name of its zone as Java's ZonedDateTime writes it."""
OF_URLS = str.maketrans("-_", "+/")
"""The two letters that differ in base64 for URLs."""
EXACT = Context(prec=2000)
SHOWN = 100
"""Characters of a value that a reason shows."""
NAMED = 10
"""Elements of an array, or values of a map, that a reason names."""

Value = Any
"""A value of a payload, or one of a field."""
Read = Callable[[Value, str, list[str]], Value]
"""Reads a value at a path as a type. It adds what is wrong with it to the list of reasons, and returns None then."""


class NotReadableError(Exception):
    """A payload is not of its encoding. The message is the reason."""


class Number(str):
    """A number of JSON, as it is written."""


class Pairs(list[tuple[str, Value]]):
    """A JSON object, with all values of each name."""


class Millis(int):
    """A time in milliseconds since 1970, of an encoding that tells so."""


class Micros(int):
    """The same in microseconds."""


class Days(int):
    """A date in days since 1970."""


def read_as(kind: T.DataType) -> Read:
    """How values are read as a type. None is read as None."""
    match kind:
        case T.StructType():
            return _struct(kind)
        case T.ArrayType():
            return _array(kind)
        case T.MapType():
            return _map(kind)
        case Enum():
            refusal = f"none of {', '.join(kind.values)}"
        case _:
            refusal = f"no {type_name(kind)}"
    leaf = _leaf(kind)

    def read(value: Value, path: str, reasons: list[str]) -> Value:
        if value is None:
            return None
        try:
            return leaf(value)
        except (UnicodeEncodeError, UnicodeDecodeError) as error:
            reasons.append(f"{path} is {not_utf8(error)}")
        except OverflowError:
            reasons.append(f"{path} is out of range: {shown(value)}")
        except ValueError:
            reasons.append(f"{path} is {refusal}: {shown(value)}")
        return None

    return read


def read_fields(fields: T.StructType) -> Read:
    """How an object is read as fields, whose paths begin with `path`."""
    known = {field.name: (read_as(field.dataType), type_name(field.dataType)) for field in fields}
    required = [field.name for field in fields if not field.nullable]

    def read(value: Value, path: str, reasons: list[str]) -> Value:
        values, wrong = {}, dict[str, list[str]]()
        for name, given in value if isinstance(value, Pairs) else value.items():
            if name in known:
                read_field, kind = known[name]
                earlier, wrong[name] = wrong.get(name), list[str]()
                values[name] = read_field(given, f"{path}{name}", wrong[name])
                if earlier and not wrong[name]:  # of several values, the last one counts
                    wrong[name] = [f"{path}{name} is no {kind} each time"]
                    values[name] = None
        for name in known:
            if wrong.get(name):
                reasons += wrong[name]
            elif values.get(name) is None and name in required:
                reasons.append(f"{path}{name} is missing")
        return values

    return read


def _struct(kind: T.StructType) -> Read:
    fields = read_fields(kind)
    return _container("struct", _is_object, lambda value, path, reasons: fields(value, f"{path}.", reasons))


def _array(kind: T.ArrayType) -> Read:
    item = _item(kind.elementType, kind.containsNull)

    def read(value: Value, path: str, reasons: list[str]) -> Value:
        return _items(((f"{path}[{at}]", each) for at, each in enumerate(value)), item, reasons)

    return _container("array", lambda value: isinstance(value, list) and not _is_object(value), read)


def _map(kind: T.MapType) -> Read:
    item = _item(kind.valueType, kind.valueContainsNull)

    def read(value: Value, path: str, reasons: list[str]) -> Value:
        entries = list(value if isinstance(value, Pairs) else value.items())
        names = [name for name, _ in entries]
        if len({*names}) < len(names):
            reasons.append(f"{path} has a key more than once")
        values = _items(((f"{path}['{shown(name)}']", each) for name, each in entries), item, reasons)
        try:
            "".join(names).encode()
        except UnicodeError:
            reasons.append(f"{path} has a key that is not UTF-8")
            return None
        return list(zip(names, values, strict=True))

    return _container("map", _is_object, read)


def _is_object(value: Value) -> bool:
    return isinstance(value, Pairs | dict)


def _container(kind: str, is_one: Callable[[Value], bool], read_one: Read) -> Read:
    def read(value: Value, path: str, reasons: list[str]) -> Value:
        if value is None:
            return None
        if is_one(value):
            return read_one(value, path, reasons)
        reasons.append(f"{path} is no {kind}: {shown(value)}")
        return None

    return read


def _item(kind: T.DataType, can_be_null: bool) -> Read:
    read_item = read_as(kind)

    def read(value: Value, path: str, reasons: list[str]) -> Value:
        if value is None and not can_be_null:
            reasons.append(f"{path} is missing")
        return read_item(value, path, reasons)

    return read


def _items(placed: Iterable[tuple[str, Value]], item: Read, reasons: list[str]) -> list[Value]:
    wrong: list[str] = []
    values = [item(value, path, wrong) for path, value in placed]
    reasons += wrong[:NAMED]
    return values


def _leaf(kind: T.DataType) -> Callable[[Value], Value]:
    """Reads a value that is not null. Raises ValueError if it is none of the type, OverflowError if out of range."""
    match kind:
        case T.IntegerType() | T.LongType():
            return lambda value: _integer(value, BITS[type(kind)])
        case T.DecimalType():
            return lambda value: _decimal(value, kind)
        case Enum():
            return lambda value: value if value in kind.values else _refuse(value)
        case TimestampMillis():
            return _millis
        case TimestampMicros():
            return lambda value: _micros(value, plain=1)
        case T.TimestampType():
            return lambda value: _micros(value, plain=0)
    return _LEAVES[type(kind)]


def _refuse(value: Value) -> Value:
    raise ValueError(value)


def _boolean(value: Value) -> bool:
    return value if isinstance(value, bool) else _refuse(value)


def _whole(value: Value) -> int:
    """A whole number, without a fraction or an exponent."""
    if isinstance(value, Number) and len(value) <= 20:
        return int(value)
    return int(value) if isinstance(value, int) and not isinstance(value, bool) else _refuse(value)


def number_of(unscaled: bytes, scale: int) -> Decimal:
    """The decimal whose digits are these bytes, as Java's BigInteger has them."""
    return Decimal(int.from_bytes(unscaled, "big", signed=True)).scaleb(-scale, context=EXACT)


def _bytes(value: Value) -> bytes:
    """Bytes, which JSON has as a text in base64, or in that for URLs, as pydantic writes it."""
    if isinstance(value, str) and not isinstance(value, Number):
        return b64decode(value.translate(OF_URLS), validate=True)
    return value if isinstance(value, bytes) else _refuse(value)


def _integer(value: Value, bits: int) -> int:
    number = _whole(value)
    return number if -(1 << bits - 1) <= number < 1 << bits - 1 else _refuse(value)


def _double(value: Value) -> float:
    if isinstance(value, Number):  # JSON has no infinity: the number is too large for a double
        return number if abs(number := float(value)) < float("inf") else _beyond(value)
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else _refuse(value)


def _beyond(value: Value) -> Value:
    raise OverflowError(value)


def _decimal(value: Value, kind: T.DecimalType) -> Decimal:
    """A number, also in a text, that the type holds exactly. Zeros at the end of a fraction do not count.

    It may be Debezium's VariableScaleDecimal.
    """
    if isinstance(value, Pairs | dict) and (parts := dict(value)).keys() == {"scale", "value"}:
        value = number_of(_bytes(parts["value"]), _integer(parts["scale"], 16))
    if isinstance(value, bool) or (isinstance(value, str) and not NUMBER.fullmatch(value)):
        _refuse(value)
    try:
        given = value if isinstance(value, Decimal) else Decimal(value if isinstance(value, str) else repr(value))
        number = given.quantize(Decimal(1).scaleb(-kind.scale), context=EXACT)
    except (InvalidOperation, ValueError):
        _refuse(value)
    return number if number == given and number.adjusted() < kind.precision - kind.scale else _refuse(value)


def _millis(value: Value) -> int:
    if isinstance(value, Micros):
        return _within(int(value) // 1000, MILLIS) if value % 1000 == 0 else _refuse(value)
    return _within(_integer(value, 64), MILLIS)


def _micros(value: Value, *, plain: int) -> int:
    """Microseconds since 1970, of a text or of a time; `plain` is how many a number without a unit stands for."""
    match value:
        case Millis():
            return _within(int(value) * 1000, MICROS)
        case Micros():
            return _within(int(value), MICROS)
        case str() if not plain and not isinstance(value, Number):
            return _since_1970(value)
    return _within(_integer(value, 64) * plain, MICROS) if plain else _refuse(value)


def _since_1970(text: str) -> int:
    """Microseconds of a time in ISO 8601 with an offset. What is less than a microsecond is cut off."""
    found = TIME.fullmatch(text) or _refuse(text)
    day, clock, fraction, offset = found.groups()
    if offset[1:3] > "18":
        _refuse(text)
    local = datetime.fromisoformat(f"{day}T{clock[:8]}{offset.upper()}")
    seconds = (local - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(seconds=1)
    micros = seconds * 1_000_000 + int((fraction or "0").ljust(6, "0")[:6])
    return micros if MICROS[0] <= micros <= MICROS[1] else _refuse(text)


def _days(value: Value) -> int:
    """Days since 1970 of a text such as 2026-01-31, of Java's [2026, 1, 31], or of a number of days."""
    if isinstance(value, str) and not isinstance(value, Number):
        return _days_to(date.fromisoformat(value) if len(value) == 10 else _refuse(value))
    if isinstance(value, list) and len(value) == 3:
        return _days_to(date(*map(_whole, value)))
    return _within(_integer(value, 32), DAYS)


def _days_to(day: date) -> int:
    return day.toordinal() - date(1970, 1, 1).toordinal()


def _within(number: int, limits: tuple[int, int]) -> int:
    return number if limits[0] <= number <= limits[1] else _beyond(number)


def as_text(value: Value) -> str:
    """A text as it is, and any other value as its JSON text. Raises UnicodeError for one that is not UTF-8."""
    if isinstance(value, bytes):
        return value.decode()
    text = value if isinstance(value, str) else _json_text(value)
    if not text.isascii():
        text.encode()
    return text


def _json_text(value: Value) -> str:
    """A value as JSON, with all values of each name, and numbers as they were written."""
    match value:
        case Number():
            return value
        case Pairs() | dict():
            entries = value if isinstance(value, Pairs) else value.items()
            return f"{{{','.join(f'{_json_text(name)}:{_json_text(each)}' for name, each in entries)}}}"
        case list():
            return f"[{','.join(map(_json_text, value))}]"
        case bytes():
            return _json_text(value.decode(errors="replace"))
        case Decimal():
            return f"{value:f}"
    return json.dumps(value, ensure_ascii=False, default=str)


_LEAVES: dict[type[T.DataType], Callable[[Value], Value]] = {
    T.BinaryType: _bytes,
    T.BooleanType: _boolean,
    T.DateType: _days,
    T.DoubleType: _double,
    T.StringType: as_text,
}


def shown(value: Value) -> str:
    """A value as a reason shows it, truncated if it is long."""
    text = value if isinstance(value, str) else _json_text(value)
    text = text if text.isascii() else text.encode(errors="replace").decode()
    return f"{text[:SHOWN]}…" if len(text) > SHOWN else text


def not_utf8(error: UnicodeEncodeError | UnicodeDecodeError) -> str:
    """Where bytes are not UTF-8, or a text that was made of them with `surrogateescape`."""
    try:
        given = error.object
        (given.encode(errors="surrogateescape") if isinstance(given, str) else given).decode()
    except UnicodeDecodeError as found:
        return f"not UTF-8 at byte {found.start}"
    return "not UTF-8"
