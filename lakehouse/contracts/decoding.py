"""Decodes payloads into typed columns by the topic's contract, and quarantines those that break it."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from types import MappingProxyType

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import (
    ArrayType,
    CalendarIntervalType,
    DataType,
    DayTimeIntervalType,
    DoubleType,
    MapType,
    NullType,
    StringType,
    StructField,
    StructType,
    YearMonthIntervalType,
)

from lakehouse.contracts.avro import DECODED, parse_avro
from lakehouse.contracts.columns import COLUMNS, Columns
from lakehouse.contracts.topics import MAXIMUM, MINIMUM, Encoding, Topic
from lakehouse.delta.tables import POSITION, POSITION_OF_MESSAGE, Table, append_missing
from lakehouse.errors import DeclarationsError
from lakehouse.settings import Settings
from lakehouse.spark.declared_sql import naming, try_eval

MALFORMED = Table(
    name="quarantine.malformed",
    columns=f"""
        topic STRING, position {POSITION}, key STRING, payload BINARY, reason STRING,
        event_time TIMESTAMP, publish_time TIMESTAMP, quarantined_at TIMESTAMP
    """,
    partition_by=("topic",),
)

UNPARSED = "_unparsed"
BROKEN, FAILS = "broken contract", "columns that fail"
"""Short reasons, which `explain` replaces."""
WHITESPACE = " \t\r\n"
END = "end of payload"
JSON_OPTIONS = {
    "mode": "PERMISSIVE",
    "columnNameOfCorruptRecord": UNPARSED,
    "allowSingleQuotes": "false",
    "allowNonNumericNumbers": "false",
}
LIMITS = {
    "maxNestingDepth": "nested more than 1,000 levels deep",
    "maxNumLen": "a number of more than 1,000 characters",
    "maxStringLen": "a string of more than 20,000,000 characters",
}
"""Limits of the parser for valid JSON: the options that would lift them, and the reasons."""
LONG_NAME = r'"[^"]{50001,}+"\s*:'
"""A field name that the parser also rejects; no option lifts that limit."""
SHOWN = 100
"""Characters of a value that a reason shows."""
ONLY_IF_REJECTED = ("payload", "topic", "properties", "schema_version")
"""Fields of `message` that `decode` keeps for rejected messages only."""
MESSAGE = f"""STRUCT<
    position: {POSITION}, key: STRING, event_time: TIMESTAMP, publish_time: TIMESTAMP, is_tombstone: BOOLEAN,
    payload: BINARY, topic: STRING, properties: MAP<STRING, STRING>, schema_version: BIGINT
>"""
"""The type of `message`, as `decode` makes it."""


@dataclass(frozen=True, kw_only=True)
class Decoding:
    """The columns that are made from a topic's messages: by name, SQL over the contract's fields and `message`."""

    topic: Topic
    columns: Columns = COLUMNS

    @property
    def schema(self) -> StructType:
        """The columns, with the types of their SQL. Needs Spark.

        Raises DeclarationsError for columns that Spark can't resolve, or whose type no table can have.
        """
        return _schema_of(self.topic.name, self.topic.fields.json(), tuple(self.columns.items()))

    @property
    def ddl(self) -> str:
        """The same as DDL."""
        return ", ".join(f"`{column.name}` {column.dataType.simpleString()}" for column in self.schema)

    @property
    def values(self) -> dict[str, Column]:
        """The columns by name."""
        return {name: F.expr(self.columns[name]).alias(name) for name in self.schema.names}


@cache
def _schema_of(topic: str, fields: str, columns: tuple[tuple[str, str], ...]) -> StructType:
    """The schema of a Decoding, whose declaration is given in values that can be cached."""
    messages = no_messages(StructType.fromJson(json.loads(fields)))
    with naming(messages, {f"{topic}: {name}": sql for name, sql in columns}):
        row = F.struct(*(F.expr(sql).alias(name) for name, sql in columns)).alias("row")
        schema = messages.select(row, "message").schema["row"].dataType
    assert isinstance(schema, StructType)
    kinds = {f"{topic}: {name}: {sql}": schema[name].dataType for name, sql in columns}
    if wrong := [
        f"{named}: is of type {kind.simpleString()}, which no table can have: CAST it to another"
        for named, kind in kinds.items()
        if not _can_be_stored(kind)
    ]:
        raise DeclarationsError(wrong)
    return schema


def no_messages(fields: StructType) -> DataFrame:
    """An empty frame of what the SQL of columns can use: a topic's fields, and `message`."""
    return SparkSession.active().createDataFrame([], fields).withColumn("message", F.lit(None).cast(MESSAGE))


def _can_be_stored(kind: DataType) -> bool:
    match kind:
        case StructType():
            return all(_can_be_stored(field.dataType) for field in kind)
        case ArrayType():
            return _can_be_stored(kind.elementType)
        case MapType():
            return _can_be_stored(kind.keyType) and _can_be_stored(kind.valueType)
    return not isinstance(kind, NullType | CalendarIntervalType | DayTimeIntervalType | YearMonthIntervalType)


def decode(messages: DataFrame, *, decoding: Decoding, reject: Column) -> DataFrame:
    """Bronze messages as the columns of `decoding`, `message` and `reason`.

    `reason` is NULL for a good message. Otherwise, it says that the payload breaks the contract or that the SQL of a
    column fails, or it is the value of `reject`, a text or NULL over the columns and `message`. A tombstone keeps any
    contract: its fields are NULL.
    `message` identifies the source of a row. The SQL of columns can use its fields ONLY_IF_REJECTED, but in the result
    they are NULL unless the message is rejected. Raises ConfigurationError for a column that Spark can't resolve.
    """
    topic = decoding.topic
    message = F.struct(
        F.expr(POSITION_OF_MESSAGE).alias("position"),
        "key",
        "event_time",
        "publish_time",
        F.col("payload").isNull().alias("is_tombstone"),
        *ONLY_IF_REJECTED,
    )
    value = _parse("payload", "schema_version", topic)
    parsed = messages.select(message.alias("message"), value.alias("_value"))
    broken = F.when(~F.col("message.is_tombstone") & ~_keeps_contract(topic), BROKEN)
    fields = (F.col("_value")[field.name].alias(field.name) for field in topic.fields)
    checked = parsed.withColumn("_broken", broken).select("message", "_broken", *fields)
    values = decoding.values
    # The SQL of columns never sees the values of a broken payload.
    row = F.when(F.col("_broken").isNull(), try_eval(F.struct(*values.values()))).alias("_row")
    typed = checked.select("message", "_broken", row)
    fails = F.when(F.col("_row").isNull(), FAILS)
    wrong = typed.select("message", F.coalesce("_broken", fails).alias("_wrong"), "_row.*")
    reasoned = wrong.withColumn("reason", F.coalesce("_wrong", reject))
    kept = F.col("message")
    for name in ONLY_IF_REJECTED:
        kept = kept.withField(name, F.when(F.col("reason").isNotNull(), F.col("message")[name]))
    return reasoned.select(kept.alias("message"), *values, "reason")


def _parse(payload: str, version: str, topic: Topic) -> Column:
    return parse_avro(payload, version, topic) if topic.encoding is Encoding.AVRO else parse_json(payload, topic)


def parse_json(payload: str, topic: Topic) -> Column:
    """A struct of the contract's fields. A value of another type is NULL, and `_unparsed` has the whole text.

    If a field occurs more than once, the last one counts. A string field accepts any value, as its JSON text.
    """
    optional = StructType([StructField(field.name, field.dataType) for field in topic.fields])
    return F.from_json(F.col(payload).cast("string"), optional.add(UNPARSED, StringType()), JSON_OPTIONS)


def _keeps_contract(topic: Topic) -> Column:
    value, text = F.col("_value"), F.col("message.payload").cast("string")
    if topic.encoding is Encoding.AVRO:
        kept = value[DECODED]
        for field in topic.fields:
            if field.dataType == StringType():
                kept = kept & F.coalesce(F.is_valid_utf8(value[field.name]), F.lit(True))
    else:
        kept = value[UNPARSED].isNull() & F.is_valid_utf8(text) & _is_one_object(text) & _half_pair(text).isNull()
    for field in topic.fields:
        kept = kept if field.nullable else kept & F.col("_value")[field.name].isNotNull()
        if (out := _out_of_range(field, topic)) is not None:
            kept = kept & ~out
    return F.coalesce(kept, F.lit(False))


def _is_one_object(text: Column) -> Column:
    """Whether nothing follows the object at the start of a text. Spark parses that object and ignores the rest."""
    # Most objects contain no other, so the first closing brace is the last byte. All others are parsed once more, as
    # the first of two elements of an array.
    is_flat = F.octet_length(F.substring_index(text, "}", 1)) == F.octet_length(text) - 1
    elements = F.from_json(F.concat(F.lit("["), text, F.lit(f',"{END}"]')), "ARRAY<STRING>", JSON_OPTIONS)
    is_first = F.rtrim(text, F.lit(WHITESPACE)).endswith("}") & (F.get(elements, F.lit(1)) == END)
    return is_flat | F.coalesce(is_first, F.lit(False))


def _half_pair(text: Column) -> Column:
    """The first escape in a text that is only half a surrogate pair, and so not a character; NULL if there is none."""
    escapes = F.replace(text, F.lit("\\\\"), F.lit("  "))
    pair = r"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"
    lone = F.regexp_substr(F.regexp_replace(escapes, pair, " "), F.lit(r"\\u[dD][89a-fA-F][0-9a-fA-F]{2}"))
    return F.when(F.contains(text, F.lit("\\u")), lone)


def _out_of_range(field: StructField, topic: Topic) -> Column | None:
    """A column: whether a field's value is out of range; None if the field has no range."""
    value = F.col("_value")[field.name]
    if MINIMUM in field.metadata:
        within = value.between(F.lit(field.metadata[MINIMUM]), F.lit(field.metadata[MAXIMUM]))
    elif isinstance(field.dataType, DoubleType) and topic.encoding is Encoding.JSON:
        within = F.abs(value) < float("inf")  # JSON has no infinity: the number was too large for a double
    else:
        return None
    return F.coalesce(~within, F.lit(False))


def explain(rejected: DataFrame, *, decoding: Decoding) -> DataFrame:
    """The `message` and `reason` of rejected rows, where `reason` says how the payload differs, or which SQL fails.

    It parses the payloads again, on the assumption that few messages are rejected.
    """
    topic = decoding.topic
    value = _parse("message.payload", "message.schema_version", topic)
    parsed = rejected.select("message", F.col("reason").alias("_reason"), value.alias("_value"))
    fields = (F.col("_value")[field.name].alias(field.name) for field in topic.fields)
    difference = _avro_difference(topic) if topic.encoding is Encoding.AVRO else _json_difference(topic)
    reason = (
        F.when(F.col("_reason") == BROKEN, difference)
        .when(F.col("_reason") == FAILS, _failures(decoding))
        .otherwise(F.col("_reason"))
    )
    return parsed.select("message", "_reason", "_value", *fields).select("message", reason.alias("reason"))


def _failures(decoding: Decoding) -> Column:
    """Names the columns whose SQL fails, with the values that they use."""
    given = {name: F.col(name).cast("string") for name in decoding.topic.fields.names}
    given["message.properties"] = F.to_json("message.properties")
    schema = decoding.schema

    def failure(name: str, value: Column) -> Column:
        sql = decoding.columns[name]
        used = [each for each in given if re.search(rf"\b{re.escape(each)}\b", sql, re.IGNORECASE)]
        values = [F.concat(F.lit(f"{each} = "), F.coalesce(shown(given[each]), F.lit("NULL"))) for each in used]
        no_value = F.lit(f"{name}: {sql} gives no {schema[name].dataType.simpleString()}")
        told = F.concat_ws(" with ", no_value, F.nullif(F.concat_ws(", ", *values), F.lit("")))
        return F.when(try_eval(F.struct(value)).isNull(), told)

    return F.concat_ws("; ", *(failure(name, value) for name, value in decoding.values.items()))


def _json_difference(topic: Topic) -> Column:
    text = F.col("message.payload").cast("string")
    # If a field occurs more than once, this has the last value, like the struct of the contract.
    texts = StructType([StructField(field.name, StringType()) for field in topic.fields])
    given = F.from_json(text, texts, JSON_OPTIONS)
    differences = F.concat_ws("; ", *(_difference(field, given[field.name], topic) for field in topic.fields))
    return (
        F.when(F.length(text) == 0, "empty payload")
        .when(~F.is_valid_utf8(text), _not_utf8(text))
        .when(F.startswith(text, F.lit("\ufeff")), "begins with a byte order mark")
        .when(~_is_object(text), F.coalesce(_beyond_limits(text), F.lit("not a JSON object")))
        .when(_half_pair(text).isNotNull(), F.concat(F.lit("half a surrogate pair: "), _half_pair(text)))
        .when(~_is_one_object(text), "more after the JSON object")
        .when(differences == "", _differences_before(text, topic))
        .otherwise(differences)
    )


def _differences_before(text: Column, topic: Topic) -> Column:
    """Names the fields that occur more than once, of which the last has the right type but another has not."""

    def fails(field: StructField) -> Column:
        alone = StructType([StructField(field.name, field.dataType), StructField(UNPARSED, StringType())])
        return F.from_json(text, alone, JSON_OPTIONS)[UNPARSED].isNotNull()

    told = {field: f"{field.name} is no {field.dataType.simpleString()} each time" for field in topic.fields}
    return F.concat_ws("; ", *(F.when(fails(field), reason) for field, reason in told.items()))


def _is_object(text: Column, more: Mapping[str, str] = MappingProxyType({})) -> Column:
    """Whether a text begins with a JSON object."""
    parsed = F.from_json(text, StructType([StructField(UNPARSED, StringType())]), {**JSON_OPTIONS, **more})
    return parsed[UNPARSED].isNull() & F.startswith(F.ltrim(text, F.lit(WHITESPACE)), F.lit("{"))


def _beyond_limits(text: Column) -> Column:
    """Which limits of the parser a text exceeds that is a JSON object otherwise; NULL if it is not one."""
    unlimited = dict.fromkeys(LIMITS, str(2**31 - 1))

    def is_beyond(limit: str) -> Column:
        return ~_is_object(text, {option: value for option, value in unlimited.items() if option != limit})

    beyond = F.concat_ws("; ", *(F.when(is_beyond(limit), reason) for limit, reason in LIMITS.items()))
    long_name = F.when(text.rlike(LONG_NAME), "a field name of more than 50,000 characters")
    return F.when(_is_object(text, unlimited), beyond).otherwise(long_name)


def _not_utf8(text: Column) -> Column:
    """The offset of the first byte of a text that is not UTF-8, counted from 0."""
    # In the valid text, a replacement character stands for that byte, and all bytes before it are the same. It is the
    # first replacement character, because those in the original text are replaced before.
    valid = F.make_valid_utf8(F.replace(text, F.lit("\ufffd"), F.lit("???")))
    return F.concat(F.lit("not UTF-8 at byte "), F.octet_length(F.substring_index(valid, "\ufffd", 1)).cast("string"))


def _avro_difference(topic: Topic) -> Column:
    """How an Avro message breaks the contract."""
    values = ((field, F.col("_value")[field.name].cast("string")) for field in topic.fields)
    version = F.col("message.schema_version").cast("string")
    return (
        F.when(version.isNull(), "no schema version")
        .when(F.col("_value").isNull(), F.concat(F.lit("unknown schema version: "), version))
        .when(F.col("_value")[DECODED].isNull(), F.concat(F.lit("no Avro record of schema version "), version))
        .otherwise(F.concat_ws("; ", *(_difference(field, value, topic) for field, value in values)))
    )


def _difference(field: StructField, given: Column, topic: Topic) -> Column:
    """What is wrong with a field; NULL if nothing is. `given` is its value as text."""
    value = F.col("_value")[field.name]
    no_such_type = F.lit(f"{field.name} is no {field.dataType.simpleString()}: ")
    wrong = F.when(given.isNotNull() & value.isNull(), F.concat(no_such_type, shown(given)))
    if not field.nullable:
        wrong = wrong.when(given.isNull(), F.lit(f"{field.name} is missing"))
    if field.dataType == StringType():
        wrong = wrong.when(~F.is_valid_utf8(value), F.concat(F.lit(f"{field.name} is "), _not_utf8(value)))
    if (out := _out_of_range(field, topic)) is not None:
        wrong = wrong.when(out, F.concat(F.lit(f"{field.name} is out of range: "), shown(given)))
    return wrong


def shown(text: Column) -> Column:
    """A text as a reason shows it, truncated if it is long."""
    return F.when(F.length(text) > SHOWN, F.concat(F.left(text, F.lit(SHOWN)), F.lit("…"))).otherwise(text)


def quarantine_malformed(settings: Settings, decoding: Decoding, rejected: DataFrame) -> None:
    """Append rejected messages to `quarantine.malformed`, unless they are already there."""
    rows = rejected.transform(explain, decoding=decoding).select(
        F.lit(decoding.topic.name).alias("topic"),
        "message.position",
        "message.key",
        "message.payload",
        "reason",
        "message.event_time",
        "message.publish_time",
        F.current_timestamp().alias("quarantined_at"),
    )
    append_missing(rows, settings, MALFORMED.name, on=["topic", "position"])
