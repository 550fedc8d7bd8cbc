"""How payloads carry values, type by type: what each is parsed as, what can be wrong with it, and its value.

Some types are parsed as another one: Spark rounds decimals silently, and takes many texts for a time.
"""

from collections.abc import Callable, Iterator, Mapping
from functools import reduce
from operator import or_
from typing import NamedTuple

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql import types as T

from pulsar_lakehouse.contracts.types import Encoding, Enum, TimestampMicros, TimestampMillis, type_name

MILLIS = (-62_135_596_800_000, 253_402_300_799_999)
MICROS = (-62_135_596_800_000_000, 253_402_300_799_999_999)
DAYS = (-719_162, 2_932_896)
"""The years 1 to 9999, the range of times in SQL and Python, since 1970."""
FIRST, LAST = "0001-01-01T00:00:00Z", "9999-12-31T23:59:59.999999Z"
DATE = r"(?!0000)[0-9]{4}-[0-9]{2}-[0-9]{2}"
TIME = rf"{DATE}T[0-9]{{2}}:[0-9]{{2}}:[0-9]{{2}}([.][0-9]{{1,6}}0*)?(Z|[+-][0-9]{{2}}:[0-9]{{2}})"
SHOWN = 100
"""Characters of a value that a reason shows."""
NAMED = 10
"""Elements of an array, or values of a map, that a reason names."""


class Mistake(NamedTuple):
    """What can be wrong with a value: whether it is, which is never NULL, and the reason."""

    is_made: Column
    reason: Column


Mistakes = Iterator[Mistake]


def parsed_type(kind: T.DataType, encoding: Encoding) -> T.DataType:
    """The type that Spark parses a value as. All in it can be NULL."""
    match kind:
        case T.StructType():
            return T.StructType([T.StructField(field.name, parsed_type(field.dataType, encoding)) for field in kind])
        case T.ArrayType():
            return T.ArrayType(parsed_type(kind.elementType, encoding))
        case T.MapType():
            return T.MapType(T.StringType(), parsed_type(kind.valueType, encoding))
        case TimestampMillis() | TimestampMicros():
            return T.LongType()
        case T.DateType() if encoding is Encoding.AVRO:
            return T.IntegerType()
        case T.DecimalType() if encoding is Encoding.JSON:
            return T.VariantType()  # a STRING has the text of a number only after it was a double
        case T.DecimalType() | T.DateType() | T.TimestampType() | Enum():
            return T.StringType()
    return kind


def mistakes_in(field: T.StructField, parsed: Column, path: Column, encoding: Encoding, *, within: Column) -> Mistakes:
    """What can be wrong with the parsed value of a field. `within` says whether there is what should have the field."""
    if not field.nullable:
        yield Mistake(within & ~_is_there(field.dataType, parsed, encoding), F.concat(path, F.lit(" is missing")))

    def of_each(kind: T.DataType, can_be_null: bool) -> Callable[[Column, Column], Mistakes]:
        item = T.StructField("", kind, can_be_null)
        return lambda value, place: mistakes_in(item, value, place, encoding, within=F.lit(True))

    match kind := field.dataType:
        case T.StructType():
            for each in kind:
                place = F.concat(path, F.lit(f".{each.name}"))
                yield from mistakes_in(each, parsed[each.name], place, encoding, within=parsed.isNotNull())
        case T.ArrayType():
            yield from in_array(parsed, path, of_each(kind.elementType, kind.containsNull))
        case T.MapType():
            yield from _mistakes_of_keys(F.map_keys(parsed), path, encoding)
            yield from in_map(parsed, path, of_each(kind.valueType, kind.valueContainsNull))
        case _:
            yield from _mistake_of_value(kind, parsed, path, encoding)


def _mistakes_of_keys(keys: Column, path: Column, encoding: Encoding) -> Mistakes:
    is_twice = F.size(F.array_distinct(keys)) < F.size(keys)
    yield Mistake(F.coalesce(is_twice, F.lit(False)), F.concat(path, F.lit(" has a key more than once")))
    if encoding is Encoding.AVRO:
        is_other = F.exists(keys, lambda key: ~F.is_valid_utf8(key))
        yield Mistake(F.coalesce(is_other, F.lit(False)), F.concat(path, F.lit(" has a key that is not UTF-8")))


def _mistake_of_value(kind: T.DataType, parsed: Column, path: Column, encoding: Encoding) -> Mistakes:
    if (fits := _fits(kind, parsed, encoding)) is not None:
        text = _text(kind, parsed, encoding)
        match kind:
            case Enum():
                reason = F.lit(f" is none of {', '.join(kind.values)}: ")
            case _ if isinstance(parsed_type(kind, encoding), T.StringType | T.VariantType):
                reason = F.lit(f" is no {type_name(kind)}: ")
            case _:
                reason = F.lit(" is out of range: ")
        is_wrong = _is_there(kind, parsed, encoding) & ~F.coalesce(fits, F.lit(False))
        utf8 = F.concat(path, F.lit(" is "), not_utf8(text))
        told = F.concat(path, reason, shown(text))
        yield Mistake(is_wrong, utf8 if type(kind) is T.StringType else told)


def _fits(kind: T.DataType, parsed: Column, encoding: Encoding) -> Column | None:
    """Whether a parsed value fits its type, FALSE or NULL if not; None if all do."""
    match kind:
        case T.DoubleType() if encoding is Encoding.JSON:
            return F.abs(parsed) < float("inf")  # JSON has no infinity: the number was too large for a double
        case TimestampMillis():
            return parsed.between(*map(F.lit, MILLIS))
        case TimestampMicros():
            return parsed.between(*map(F.lit, MICROS))
        case T.DateType() if encoding is Encoding.AVRO:
            return parsed.between(*map(F.lit, DAYS))
        case T.DateType():
            return _is(parsed, DATE) & parsed.try_cast(kind).isNotNull()
        case T.TimestampType():
            return _is(parsed, TIME) & parsed.try_cast(kind).between(F.lit(FIRST).cast(kind), F.lit(LAST).cast(kind))
        case T.DecimalType():
            fits = _is(_text(kind, parsed, encoding), _digits(kind))
            # What has more digits than a decimal can have is a DOUBLE in a variant.
            return fits & (F.schema_of_variant(parsed) != "DOUBLE") if encoding is Encoding.JSON else fits
        case Enum():
            return parsed.isin(*kind.values)
        case T.StringType() if encoding is Encoding.AVRO:
            return F.is_valid_utf8(parsed)
    return None


def _is(text: Column, pattern: str) -> Column:
    return text.rlike(rf"\A(?:{pattern})\z")


def _digits(kind: T.DecimalType) -> str:
    """A pattern of the numbers that a decimal holds exactly: zeros at the end of a fraction do not count."""
    most = kind.precision - kind.scale
    whole = f"0|[1-9][0-9]{{0,{most - 1}}}" if most else "0"
    return f"-?({whole})([.](?=[0-9])[0-9]{{0,{kind.scale}}}0*)?"


def _text(kind: T.DataType, parsed: Column, encoding: Encoding) -> Column:
    if isinstance(kind, T.DecimalType) and encoding is Encoding.JSON:
        return F.variant_get(parsed, "$", "string")
    return parsed.cast("string")


def _is_there(kind: T.DataType, parsed: Column, encoding: Encoding) -> Column:
    """Whether there is a value: a JSON null is no NULL in a variant."""
    return (_text(kind, parsed, encoding) if isinstance(kind, T.DecimalType) else parsed).isNotNull()


def value_of(kind: T.DataType, parsed: Column, encoding: Encoding) -> Column:
    """The value of what was parsed and has no mistake."""
    if is_parsed_as_itself(kind, encoding):
        return parsed
    match kind:
        case T.StructType():
            values = (value_of(each.dataType, parsed[each.name], encoding).alias(each.name) for each in kind)
            return F.when(parsed.isNotNull(), F.struct(*values))
        case T.ArrayType():
            return F.transform(parsed, lambda item: value_of(kind.elementType, item, encoding))
        case T.MapType():
            return F.transform_values(parsed, lambda _, item: value_of(kind.valueType, item, encoding))
        case TimestampMillis():
            return F.timestamp_millis(parsed)
        case TimestampMicros():
            return F.timestamp_micros(parsed)
        case T.DateType() if encoding is Encoding.AVRO:
            return F.date_from_unix_date(parsed)
        case Enum():
            return parsed
    return _text(kind, parsed, encoding).cast(kind)


def is_parsed_as_itself(kind: T.DataType, encoding: Encoding) -> bool:
    match kind:
        case T.StructType():
            return all(is_parsed_as_itself(each.dataType, encoding) for each in kind)
        case T.ArrayType():
            return is_parsed_as_itself(kind.elementType, encoding)
        case T.MapType():
            return is_parsed_as_itself(kind.valueType, encoding)
    return parsed_type(kind, encoding) is kind


def in_array(array: Column, path: Column, mistakes: Callable[[Column, Column], Mistakes]) -> Mistakes:
    """What can be wrong with the elements of an array, of which `mistakes` gives that of one by its path."""
    if any(mistakes(F.lit(None), path)):
        told = F.transform(
            array, lambda item, at: told_of(mistakes(item, F.concat(path, F.lit("["), at.cast("string"), F.lit("]"))))
        )
        yield Mistake(_any_in(array, lambda item: mistakes(item, path)), _first_told(told))


def in_map(items: Column, path: Column, mistakes: Callable[[Column, Column], Mistakes]) -> Mistakes:
    """The same of the values of a map."""
    if any(mistakes(F.lit(None), path)):

        def of(entry: Column) -> Column:
            place = F.concat(path, F.lit("['"), shown(entry["key"]), F.lit("']"))
            return told_of(mistakes(entry["value"], place))

        told = F.transform(F.map_entries(items), of)
        yield Mistake(_any_in(F.map_values(items), lambda item: mistakes(item, path)), _first_told(told))


def _any_in(array: Column, mistakes: Callable[[Column], Mistakes]) -> Column:
    made = F.exists(array, lambda item: reduce(or_, (each.is_made for each in mistakes(item))))
    return F.coalesce(made, F.lit(False))


def _first_told(told: Column) -> Column:
    return F.array_join(F.slice(F.filter(told, lambda each: each != ""), 1, NAMED), "; ")


def told_of(mistakes: Mistakes) -> Column:
    """The reasons of the mistakes that are made, as one text; empty if none is."""
    return F.concat_ws("; ", *(F.when(each.is_made, each.reason) for each in mistakes))


def not_utf8(text: Column) -> Column:
    """The offset of the first byte of a text that is not UTF-8, counted from 0."""
    # In the valid text, a replacement character stands for that byte, and all bytes before it are the same. It is the
    # first replacement character, because those in the original text are replaced before.
    valid = F.make_valid_utf8(F.replace(text, F.lit("\ufffd"), F.lit("???")))
    return F.concat(F.lit("not UTF-8 at byte "), F.octet_length(F.substring_index(valid, "\ufffd", 1)).cast("string"))


def told_with(line: str, values: Mapping[str, Column]) -> Column:
    """A line, followed by the values that it is about, if there are any. The values are texts."""
    each = (F.concat(F.lit(f"{name} = "), F.coalesce(shown(text), F.lit("NULL"))) for name, text in values.items())
    return F.concat_ws(" with ", F.lit(line), F.nullif(F.concat_ws(", ", *each), F.lit("")))


def shown(text: Column) -> Column:
    """A text as a reason shows it, truncated if it is long."""
    return F.when(F.length(text) > SHOWN, F.concat(F.left(text, F.lit(SHOWN)), F.lit("…"))).otherwise(text)
