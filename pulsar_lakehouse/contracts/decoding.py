"""Decodes payloads into typed columns by the topic's contract, and says how those that break it differ."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache

from pyspark import SparkContext
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from pulsar_lakehouse.contracts.avro import DECODED, avro_difference, parse_avro
from pulsar_lakehouse.contracts.columns import COLUMNS, Columns
from pulsar_lakehouse.contracts.json_objects import UNPARSED, is_sound, json_difference, parse_json
from pulsar_lakehouse.contracts.topics import Encoding, Topic
from pulsar_lakehouse.contracts.values import Mistakes, is_parsed_as_itself, mistakes_in, told_with, value_of
from pulsar_lakehouse.errors import DeclarationsError
from pulsar_lakehouse.spark.declared_sql import naming, try_eval
from pulsar_lakehouse.tables.declared import POSITION, POSITION_OF_MESSAGE, Table, ddl_of

MALFORMED = Table(
    name="quarantine.malformed",
    columns=f"""
        topic STRING, position {POSITION}, key STRING, payload BINARY, reason STRING,
        event_time TIMESTAMP, publish_time TIMESTAMP, quarantined_at TIMESTAMP
    """,
    partition_by=("topic",),
)

BROKEN, FAILS = "broken contract", "columns that fail"
"""Short reasons, which `explain` replaces."""
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
    def schema(self) -> T.StructType:
        """The columns, with the types of their SQL. Needs Spark.

        Raises DeclarationsError for columns that Spark can't resolve, or whose type no table can have.
        """
        return _schema_of(self.topic.name, self.topic.fields.json(), tuple(self.columns.items()))

    @property
    def ddl(self) -> str:
        """The same as DDL."""
        return ddl_of(self.schema)

    @property
    def values(self) -> dict[str, Column]:
        """The columns by name."""
        return {name: F.expr(self.columns[name]).alias(name) for name in self.schema.names}


@cache
def _schema_of(topic: str, fields: str, columns: tuple[tuple[str, str], ...]) -> T.StructType:
    """The schema of a Decoding, whose declaration is given in values that can be cached."""
    messages = no_messages(T.StructType.fromJson(json.loads(fields)))
    with naming(messages, {f"{topic}: {name}": sql for name, sql in columns}):
        row = F.struct(*(F.expr(sql).alias(name) for name, sql in columns)).alias("row")
        schema = messages.select(row, "message").schema["row"].dataType
    assert isinstance(schema, T.StructType)
    kinds = {f"{topic}: {name}: {sql}": schema[name].dataType for name, sql in columns}
    if wrong := [
        f"{named}: is of type {kind.simpleString()}, which no table can have: CAST it to another"
        for named, kind in kinds.items()
        if not _can_be_stored(kind)
    ]:
        raise DeclarationsError(wrong)
    return schema


def no_messages(fields: T.StructType) -> DataFrame:
    """An empty frame of what the SQL of columns can use: a topic's fields, and `message`."""
    return SparkSession.active().createDataFrame([], fields).withColumn("message", F.lit(None).cast(MESSAGE))


def _can_be_stored(kind: T.DataType) -> bool:
    match kind:
        case T.StructType():
            return all(_can_be_stored(field.dataType) for field in kind)
        case T.ArrayType():
            return _can_be_stored(kind.elementType)
        case T.MapType():
            return _can_be_stored(kind.keyType) and _can_be_stored(kind.valueType)
    return not isinstance(kind, T.NullType | T.CalendarIntervalType | T.DayTimeIntervalType | T.YearMonthIntervalType)


def decode(
    messages: DataFrame, *, decoding: Decoding, reject: Column, keys: Mapping[str, Column] | None = None
) -> DataFrame:
    """Bronze messages as the columns of `decoding`, `message` and `reason`.

    `reason` is NULL for a good message. Otherwise, it says that the payload breaks the contract or that the SQL of a
    column fails, or it is the value of `reject`, a text or NULL over the columns and `message`. A tombstone keeps any
    contract: its fields are NULL. `keys` replace columns of the same names, before `reject` is evaluated.
    `message` identifies the source of a row. The SQL of columns can use its fields ONLY_IF_REJECTED, but in the result
    they are NULL unless the message is rejected. Raises ConfigurationError for a column that Spark can't resolve.
    """
    topic = decoding.topic
    parsed = messages.select(_message(), _parse("payload", "schema_version", topic).alias("_value"))
    broken = F.when(~F.col("message.is_tombstone") & ~_keeps_contract(topic), BROKEN)
    fields = _fields(topic, F.col("_broken").isNull())
    checked = parsed.withColumn("_broken", broken).select("message", "_broken", *fields)
    values = decoding.values
    # The SQL of columns never sees the values of a broken payload.
    row = F.when(F.col("_broken").isNull(), try_eval(F.struct(*values.values()))).alias("_row")
    typed = checked.select("message", "_broken", row)
    fails = F.when(F.col("_row").isNull(), FAILS)
    wrong = typed.select("message", F.coalesce("_broken", fails).alias("_wrong"), "_row.*").withColumns(
        dict(keys or {})
    )
    reasoned = wrong.withColumn("reason", F.coalesce("_wrong", reject))
    kept = F.col("message")
    for name in ONLY_IF_REJECTED:
        kept = kept.withField(name, F.when(F.col("reason").isNotNull(), F.col("message")[name]))
    return reasoned.select(kept.alias("message"), *values, "reason")


def decode_if_readable(messages: DataFrame, *, decoding: Decoding, names: Sequence[str]) -> DataFrame:
    """Bronze messages as `message` and the columns of `decoding` with these names, also of payloads that break it.

    A column is NULL if it can't be read.
    """
    topic = decoding.topic
    parsed = messages.select(_message(), _parse("payload", "schema_version", topic).alias("_value"))
    fields = parsed.select("message", *_fields(topic, _keeps_contract(topic)))
    values = (try_eval(F.expr(decoding.columns[name])) for name in names)
    is_payload = F.col("message.payload").isNotNull()  # a tombstone has no fields
    columns = (F.when(is_payload, value).alias(name) for name, value in zip(names, values, strict=True))
    return fields.select("message", *columns)


def _message() -> Column:
    """Over bronze's columns: `message`."""
    return F.struct(
        F.expr(POSITION_OF_MESSAGE).alias("position"),
        "key",
        "event_time",
        "publish_time",
        F.col("payload").isNull().alias("is_tombstone"),
        *ONLY_IF_REJECTED,
    ).alias("message")


def _parse(payload: str, version: str, topic: Topic) -> Column:
    return parse_avro(payload, version, topic) if topic.encoding is Encoding.AVRO else parse_json(payload, topic)


def _keeps_contract(topic: Topic) -> Column:
    value = F.col("_value")
    if topic.encoding is Encoding.AVRO:
        kept = value[DECODED]
    else:
        kept = value[UNPARSED].isNull() & is_sound(F.col("message.payload").cast("string"))
    for mistake in _mistakes(topic):
        kept = kept & ~mistake.is_made
    return F.coalesce(kept, F.lit(False))


def _mistakes(topic: Topic) -> Mistakes:
    for field in topic.fields:
        parsed = F.col("_value")[field.name]
        yield from mistakes_in(field, parsed, F.lit(field.name), topic.encoding, within=F.lit(True))


def _fields(topic: Topic, are_sound: Column) -> Iterator[Column]:
    """The fields' values. Those that are parsed as another type are NULL where the payload may break the contract."""
    for field in topic.fields:
        parsed = F.col("_value")[field.name]
        if not is_parsed_as_itself(field.dataType, topic.encoding):
            parsed = F.when(are_sound, value_of(field.dataType, parsed, topic.encoding))
        yield parsed.alias(field.name)


def explain(rejected: DataFrame, *, decoding: Decoding) -> DataFrame:
    """The `message` and `reason` of rejected rows, where `reason` says how the payload differs, or which SQL fails.

    It parses the payloads again, on the assumption that few messages are rejected.
    """
    topic = decoding.topic
    value = _parse("message.payload", "message.schema_version", topic)
    parsed = rejected.select("message", F.col("reason").alias("_reason"), value.alias("_value"))
    fields = _fields(topic, F.col("_reason") == FAILS)
    made = rejected.sparkSession.sparkContext, repr(decoding)
    if made not in _REASONS:
        _REASONS[made] = _reason(decoding)
    return parsed.select("message", "_reason", "_value", *fields).select("message", _REASONS[made].alias("reason"))


_REASONS: dict[tuple[SparkContext, str], Column] = {}
"""What `_reason` has made, by JVM and declaration. It takes half a second, as it calls the JVM a thousand times."""


def _reason(decoding: Decoding) -> Column:
    return (
        F.when(F.col("_reason") == BROKEN, _difference(decoding.topic))
        .when(F.col("_reason") == FAILS, _failures(decoding))
        .otherwise(F.col("_reason"))
    )


def _difference(topic: Topic) -> Column:
    """How a payload breaks the contract."""
    value = F.col("_value")
    if topic.encoding is Encoding.AVRO:
        return avro_difference(topic, F.col("message.schema_version"), value, _mistakes(topic))
    return json_difference(topic, F.col("message.payload").cast("string"), value)


def _failures(decoding: Decoding) -> Column:
    """Names the columns whose SQL fails, with the values that they use."""
    given = {name: F.col(name).cast("string") for name in decoding.topic.fields.names}
    given["message.properties"] = F.to_json("message.properties")
    schema = decoding.schema

    def failure(name: str, value: Column) -> Column:
        sql = decoding.columns[name]
        used = {each: text for each, text in given.items() if re.search(rf"(?i)\b{re.escape(each)}\b", sql)}
        line = f"{name}: {sql} gives no {schema[name].dataType.simpleString()}"
        return F.when(try_eval(F.struct(value)).isNull(), told_with(line, used))

    return F.concat_ws("; ", *(failure(name, value) for name, value in decoding.values.items()))
