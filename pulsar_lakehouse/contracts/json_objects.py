"""JSON payloads: parses them into typed fields, and says how one breaks the contract."""

from collections.abc import Mapping
from types import MappingProxyType

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql import types as T

from pulsar_lakehouse.contracts.topics import Encoding, Topic
from pulsar_lakehouse.contracts.types import type_name
from pulsar_lakehouse.contracts.values import (
    Mistake,
    Mistakes,
    in_array,
    in_map,
    mistakes_in,
    not_utf8,
    parsed_type,
    shown,
    told_of,
)

UNPARSED = "_unparsed"
WHITESPACE = " \t\r\n"
END = "end of payload"
JSON_OPTIONS = {
    "mode": "PERMISSIVE",
    "columnNameOfCorruptRecord": UNPARSED,
    "allowSingleQuotes": "false",
    "allowNonNumericNumbers": "false",
}
SHAPES: Mapping[type[T.DataType], str] = {
    T.StructType: "OBJECT",
    T.MapType: "OBJECT",
    T.ArrayType: "ARRAY",
    T.BooleanType: "BOOLEAN",
    T.IntegerType: "BIGINT",
    T.LongType: "BIGINT",
    T.DoubleType: "BIGINT|DECIMAL|DOUBLE",
}
"""The types that variants have of JSON values, by the type that they are parsed as; others take all."""
LIMITS = {
    "maxNestingDepth": "nested more than 1,000 levels deep",
    "maxNumLen": "a number of more than 1,000 characters",
    "maxStringLen": "a string of more than 20,000,000 characters",
}
"""Limits of the parser for valid JSON: the options that would lift them, and the reasons."""
LONG_NAME = r'"[^"]{50001,}+"\s*:'
"""A field name that the parser also rejects; no option lifts that limit."""


def parse_json(payload: str, topic: Topic) -> Column:
    """A struct of the contract's fields. A value of another type is NULL, and `_unparsed` has the whole text.

    If a field occurs more than once, the last one counts. A string field accepts any value, as its JSON text.
    """
    fields = parsed_type(topic.fields, Encoding.JSON)
    assert isinstance(fields, T.StructType)
    return F.from_json(F.col(payload).cast("string"), fields.add(UNPARSED, T.StringType()), JSON_OPTIONS)


def is_sound(text: Column) -> Column:
    """Whether a text is one JSON object, and nothing else, if a struct could be parsed from it."""
    return F.is_valid_utf8(text) & _is_one_object(text) & _half_pair(text).isNull()


def _is_one_object(text: Column) -> Column:
    """Whether nothing follows the object at the start of a text. Spark parses that object and ignores the rest."""
    # Most objects contain no other, so the only closing brace is the last byte. All others are parsed once more, as
    # the first of two elements of an array.
    before_last = F.substring(text.cast("binary"), 1, F.octet_length(text) - 1)  # bytes are searched faster than text
    is_flat = F.endswith(text, F.lit("}")) & ~F.contains(before_last, F.lit(b"}"))
    elements = F.from_json(F.concat(F.lit("["), text, F.lit(f',"{END}"]')), "ARRAY<STRING>", JSON_OPTIONS)
    is_first = F.rtrim(text, F.lit(WHITESPACE)).endswith("}") & (F.get(elements, F.lit(1)) == END)
    return is_flat | F.coalesce(is_first, F.lit(False))


def _half_pair(text: Column) -> Column:
    """The first escape in a text that is only half a surrogate pair, and so not a character; NULL if there is none."""
    escapes = F.replace(text, F.lit("\\\\"), F.lit("  "))
    pair = r"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"
    lone = F.regexp_substr(F.regexp_replace(escapes, pair, " "), F.lit(r"\\u[dD][89a-fA-F][0-9a-fA-F]{2}"))
    return F.when(F.contains(text, F.lit("\\u")), lone)


def json_difference(topic: Topic, text: Column, value: Column) -> Column:
    """How a payload breaks the contract. `value` is what `parse_json` makes of it."""
    # If a field occurs more than once, this has the last value, like the struct of the contract.
    texts = T.StructType([T.StructField(field.name, T.StringType()) for field in topic.fields])
    given = F.from_json(text, texts, JSON_OPTIONS)
    told = (_difference(field, text, given[field.name], value[field.name]) for field in topic.fields)
    differences = F.concat_ws("; ", *told)
    return (
        F.when(F.length(text) == 0, "empty payload")
        .when(~F.is_valid_utf8(text), not_utf8(text))
        .when(F.startswith(text, F.lit("\ufeff")), "begins with a byte order mark")
        .when(~_is_object(text), F.coalesce(_beyond_limits(text), F.lit("not a JSON object")))
        .when(_half_pair(text).isNotNull(), F.concat(F.lit("half a surrogate pair: "), _half_pair(text)))
        .when(~_is_one_object(text), "more after the JSON object")
        .when(differences == "", _differences_before(text, topic))
        .otherwise(differences)
    )


def _difference(field: T.StructField, text: Column, given: Column, value: Column) -> Column:
    """What is wrong with a field; NULL if nothing is. `given` is its value as text."""
    path, kind = F.lit(field.name), field.dataType
    if isinstance(kind, T.StructType | T.ArrayType | T.MapType):
        variant = F.from_json(text, T.StructType([T.StructField(field.name, T.VariantType())]), JSON_OPTIONS)[
            field.name
        ]
        is_other, wrong = _fails(field, text), told_of(_misshapen(kind, variant, path))
    else:
        is_other = given.isNotNull() & value.isNull()
        wrong = F.concat(F.lit(f"{field.name} is no {type_name(kind)}: "), shown(given))
    others = told_of(mistakes_in(field, value, path, Encoding.JSON, within=F.lit(True)))
    return F.nullif(F.when(is_other, wrong).otherwise(others), F.lit(""))


def _misshapen(kind: T.DataType, given: Column, path: Column) -> Mistakes:
    """Which values in a variant have another JSON type than the contract says."""
    shape = F.schema_of_variant(given)
    fits = shape.rlike(rf"\A({SHAPES.get(type(parsed_type(kind, Encoding.JSON)), '.*')})")
    if isinstance(kind, T.IntegerType):
        fits = fits & F.try_variant_get(given, "$", "int").isNotNull()
    text = F.variant_get(given, "$", "string")
    is_whole = shape.startswith("DECIMAL") & ~F.contains(text, F.lit("."))  # in a variant, 1.0 is the decimal 1
    text = F.when(is_whole, F.concat(text, F.lit(".0"))).otherwise(text)
    is_wrong = F.coalesce(~fits & (shape != "VOID"), F.lit(False))
    yield Mistake(is_wrong, F.concat(path, F.lit(f" is no {type_name(kind)}: "), shown(text)))
    match kind:
        case T.StructType():
            values = given.try_cast(T.MapType(T.StringType(), T.VariantType()))
            for field in kind:
                place = F.concat(path, F.lit(f".{field.name}"))
                yield from _misshapen(field.dataType, F.try_element_at(values, F.lit(field.name)), place)
        case T.ArrayType():
            items = given.try_cast(T.ArrayType(T.VariantType()))
            yield from in_array(items, path, lambda item, at: _misshapen(kind.elementType, item, at))
        case T.MapType():
            values = given.try_cast(T.MapType(T.StringType(), T.VariantType()))
            yield from in_map(values, path, lambda item, at: _misshapen(kind.valueType, item, at))


def _differences_before(text: Column, topic: Topic) -> Column:
    """Names the fields that occur more than once, of which the last has the right type but another has not."""
    told = {field: f"{field.name} is no {type_name(field.dataType)} each time" for field in topic.fields}
    return F.concat_ws("; ", *(F.when(_fails(field, text), reason) for field, reason in told.items()))


def _fails(field: T.StructField, text: Column) -> Column:
    """Whether one of the values that an object has of a field is of another JSON type."""
    kind = parsed_type(field.dataType, Encoding.JSON)
    alone = T.StructType([T.StructField(field.name, kind), T.StructField(UNPARSED, T.StringType())])
    return F.from_json(text, alone, JSON_OPTIONS)[UNPARSED].isNotNull()


def _is_object(text: Column, more: Mapping[str, str] = MappingProxyType({})) -> Column:
    """Whether a text begins with a JSON object."""
    parsed = F.from_json(text, T.StructType([T.StructField(UNPARSED, T.StringType())]), {**JSON_OPTIONS, **more})
    return parsed[UNPARSED].isNull() & F.startswith(F.ltrim(text, F.lit(WHITESPACE)), F.lit("{"))


def _beyond_limits(text: Column) -> Column:
    """Which limits of the parser a text exceeds that is a JSON object otherwise; NULL if it is not one."""
    unlimited = dict.fromkeys(LIMITS, str(2**31 - 1))

    def is_beyond(limit: str) -> Column:
        return ~_is_object(text, {option: value for option, value in unlimited.items() if option != limit})

    beyond = F.concat_ws("; ", *(F.when(is_beyond(limit), reason) for limit, reason in LIMITS.items()))
    long_name = F.when(text.rlike(LONG_NAME), "a field name of more than 50,000 characters")
    return F.when(_is_object(text, unlimited), beyond).otherwise(long_name)
