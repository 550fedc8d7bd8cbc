"""Decodes messages into typed columns: the fields by the topic's contract, the columns by their SQL."""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, reduce
from typing import NamedTuple

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T
from pyspark.sql.pandas.functions import arrow_udf

from pulsar_lakehouse.contracts.columns import COLUMNS, Columns
from pulsar_lakehouse.contracts.topics import Topic, is_by_message
from pulsar_lakehouse.contracts.types import in_spark, names_twice
from pulsar_lakehouse.errors import DeclarationsError
from pulsar_lakehouse.spark.declared_sql import naming, told_with, try_eval, value_of, why_no_condition
from pulsar_lakehouse.spark.functions import Function, called_in, errors_in
from pulsar_lakehouse.tables.declared import POSITION, POSITION_OF_MESSAGE, Table, ddl_of

MALFORMED = Table(
    name="quarantine.malformed",
    columns=f"""
        topic STRING, position {POSITION}, key STRING, payload BINARY, reason STRING,
        event_time TIMESTAMP, publish_time TIMESTAMP, quarantined_at TIMESTAMP, row INT
    """,
    partition_by=("topic",),
)
"""Messages that break their contract. Where a message can have many rows, `row` is the one that does, or -1."""

ROW = "row"
"""The element of the array, under which the SQL of columns has it if a message can have many rows."""
PRUNING = ("spark.sql.optimizer.nestedSchemaPruning.enabled", "spark.sql.optimizer.expression.nestedPruning.enabled")
"""Settings with which Spark reads only the fields of structs that are used. Above an `explode`, Spark 4.2 can lose one
that is: INTERNAL_ERROR_ATTRIBUTE_NOT_FOUND."""
FAILS = "columns that fail"
"""A short reason, which `explain` replaces."""
SOUND = "_broken IS NULL"
"""The condition on which the SQL of columns runs."""
TOMBSTONE = "message.is_tombstone"
"""Where functions may fail, as fields are NULL."""
IS_PAYLOAD = f"NOT {TOMBSTONE}"
"""The condition on which SQL runs over what can be read of a payload."""
JUDGED = "_wrong IS NULL"
"""The condition on which checks reject a message: nothing else is wrong with it."""
ONLY_IF_REJECTED = ("payload", "topic", "properties", "schema_version")
"""Fields of `message` that `decode` keeps for rejected messages only."""
ENCRYPTION = "pulsar.encryption"
"""The property of messages that landed encrypted, as bronze/pulsar/encryption.py writes it."""
MESSAGE = f"""STRUCT<
    position: {POSITION}, key: STRING, event_time: TIMESTAMP, publish_time: TIMESTAMP, is_tombstone: BOOLEAN,
    payload: BINARY, topic: STRING, properties: MAP<STRING, STRING>, schema_version: BIGINT
>"""
"""The type of `message`, as `decode` makes it."""


@dataclass(frozen=True, kw_only=True)
class Decoding:
    """The columns that are made from a topic's messages: by name, SQL over the contract's fields and `message`.

    Reasons tell a column that no table has, such as `_occurred_at`, without the underscore.
    """

    topic: Topic
    columns: Columns = COLUMNS
    keys: tuple[str, ...] = ()
    """The columns of the key, which a message key can have as an object."""

    @property
    def schema(self) -> T.StructType:
        """The columns, with the types of their SQL. Needs Spark.

        Raises DeclarationsError for columns that Spark can't resolve, or whose type no table can have.
        """
        called = tuple(called_in([*self.columns.values(), self.topic.rows]))
        return _schema_of(_bare(self.topic), tuple(self.columns.items()), called)

    @property
    def ddl(self) -> str:
        """The same as DDL."""
        return ddl_of(self.schema)

    @property
    def key_names(self) -> tuple[tuple[str, ...], ...]:
        """The names that each column of the key can have in a message key: its own, and that of its field."""
        return tuple((name, self.columns[name].strip("`")) for name in self.keys)

    @property
    def values(self) -> dict[str, Column]:
        """The columns by name."""
        return self.values_if(SOUND)

    def values_if(self, given: str) -> dict[str, Column]:
        """The columns by name, on a condition that calls of functions have."""
        return {each.name: self._value_of(each, given).alias(each.name) for each in self.schema}

    def _value_of(self, column: T.StructField, given: str) -> Column:
        value = value_of(self.columns[column.name], given=given, spared=TOMBSTONE)
        # Of what SQL makes of literals, Spark knows that it is never NULL. In rows of malformed messages it is.
        is_nested = isinstance(column.dataType, T.StructType | T.ArrayType | T.MapType)
        return value.cast(in_spark(column.dataType)) if is_nested else value


@cache
def _schema_of(source: "_Source", columns: tuple[tuple[str, str], ...], called: tuple[Function, ...]) -> T.StructType:
    """The schema of a Decoding, whose declaration is given in values that can be cached.

    It depends on the functions that are `called`, too.
    """
    topic = source.name
    messages = _no_rows(source)
    told = {f"{topic}: {name.lstrip('_')}": sql for name, sql in columns}
    with naming(messages, told):
        row = F.struct(*(value_of(sql).alias(name) for name, sql in columns)).alias("row")
        schema = messages.select(row, "message").schema["row"].dataType
    assert isinstance(schema, T.StructType)
    kinds = {f"{named}: {sql}": each.dataType for (named, sql), each in zip(told.items(), schema, strict=True)}
    wrong = [
        f"{named}: is of type {kind.simpleString()}, which no table can have: CAST it to another"
        for named, kind in kinds.items()
        if not _can_be_stored(kind)
    ]
    wrong += [f"{topic}: {line}" for each in schema for line in names_twice(each.dataType, each.name)]
    if wrong:
        raise DeclarationsError(wrong)
    return schema


class _Source(NamedTuple):
    """What the SQL of columns is resolved over, in values that can be cached."""

    name: str
    fields: str
    where: str
    rows: str


def _bare(topic: Topic) -> _Source:
    return _Source(topic.name, topic.fields.json(), topic.where, topic.rows)


def no_messages(topic: Topic) -> DataFrame:
    """An empty frame of what the SQL of columns can use: a topic's fields, `message`, and `row` if there can be many.

    Raises DeclarationsError if `where` is no condition, or `rows` no array.
    """
    return _no_rows(_bare(topic))


def _no_rows(source: _Source) -> DataFrame:
    fields = T.StructType.fromJson(json.loads(source.fields))
    messages = SparkSession.active().createDataFrame([], fields).withColumn("message", F.lit(None).cast(MESSAGE))
    if source.where and (why := why_no_condition(messages, f"{source.name}: where", source.where)):
        raise DeclarationsError([why])
    if not source.rows:
        return messages
    named = f"{source.name}: rows"
    with naming(messages, {named: source.rows}):
        kind = messages.select(value_of(source.rows)).schema[0].dataType
    if not isinstance(kind, T.ArrayType):
        raise DeclarationsError([f"{named}: {source.rows}: is {kind.simpleString()}: must be an array"])
    at = F.col("message.position").withField("row", F.lit(0))
    return messages.withColumns(
        {"message": F.col("message").withField("position", at), ROW: F.lit(None).cast(kind.elementType)}
    )


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

    `reason` is NULL for a good message. Otherwise, it says how the payload breaks the contract or that the SQL of a
    column fails, or it is the value of `reject`, a text or NULL over the columns and `message`. A tombstone keeps any
    contract: its fields are NULL, but for those that an envelope tells. `keys` replace columns of the same names,
    before `reject` is evaluated.
    `message` identifies the source of a row. The SQL of columns can use its fields ONLY_IF_REJECTED, but in the result
    they are NULL unless the message is rejected. Raises ConfigurationError for a column that Spark can't resolve.
    """
    values = decoding.values
    read = messages.transform(_read_rows, decoding=decoding)
    has_rows = bool(decoding.topic.rows)
    given = F.struct(*(f"`{name}`" for name in _used_fields(decoding)), ROW) if has_rows else F.col("_fields")
    # The SQL of columns never sees the values of a broken payload.
    row = F.when(F.col("_broken").isNull(), try_eval(F.struct(*values.values()))).alias("_row")
    typed = read.select("message", "_broken", given.alias("_given"), row)
    fails = F.when(F.col("_row").isNull(), FAILS)
    wrong = typed.select("message", "_given", F.coalesce("_broken", fails).alias("_wrong"), "_row.*").withColumns(
        dict(keys or {})
    )
    reasoned = wrong.withColumn("reason", F.coalesce("_wrong", reject))
    kept = F.col("message").withField("fields", F.when(F.col("_wrong") == FAILS, F.col("_given")))
    for name in ONLY_IF_REJECTED:
        value = F.col("message")[name]
        if name == "payload" and has_rows:  # of a row, an array of it alone
            is_row = F.col("message.position.row") >= 0
            value = F.when(is_row, F.to_json(F.array(f"_given.{ROW}")).cast("binary")).otherwise(value)
        kept = kept.withField(name, F.when(F.col("reason").isNotNull(), value))
    return reasoned.select(kept.alias("message"), *values, "reason")


def decode_if_readable(messages: DataFrame, *, decoding: Decoding, names: Sequence[str]) -> DataFrame:
    """Bronze messages as `message` and the columns of `decoding` with these names, also of payloads that break it.

    A column is NULL if it can't be read.
    """
    fields = messages.transform(_read_rows, decoding=decoding, are_readable=False)
    values = (try_eval(value_of(decoding.columns[name], given=IS_PAYLOAD)) for name in names)
    is_payload = ~F.col("message.is_tombstone")
    columns = (F.when(is_payload, value).alias(name) for name, value in zip(names, values, strict=True))
    return fields.select("message", *columns)


def positions(messages: DataFrame, *, decoding: Decoding) -> DataFrame:
    """The `position` of each row of bronze messages; where a message is one row, that of each message."""
    if decoding.topic.is_plain:
        return messages.select(F.expr(POSITION_OF_MESSAGE).alias("position"))
    return messages.transform(_read_rows, decoding=decoding).select("message.position")


def of_kind(messages: DataFrame, *, decoding: Decoding) -> DataFrame:
    """The `position` of each bronze message that is of the topic's kind."""
    return messages.transform(_read_kind, decoding=decoding).select("message.position")


def _read_kind(messages: DataFrame, *, decoding: Decoding) -> DataFrame:
    """Bronze messages of the topic's kind, or all if it has only one, as `_read` gives them, and each field."""
    read = messages.transform(_read, decoding=decoding).select("message", "_broken", "_fields", "_fields.*")
    return read.where(_is_of_kind(decoding.topic)) if decoding.topic.where else read


def _is_of_kind(topic: Topic) -> Column:
    """Over fields and `message`. If an error or NULL leaves it open, it is not."""
    is_meant = _is_true(topic.where)
    if is_by_message(topic.where):  # of a batch that is encrypted, the properties are, too
        is_unread = F.col("message.properties")[ENCRYPTION].isNotNull()
    else:
        is_unread = F.col("_fields").isNull() & ~F.col("message.is_tombstone")
        is_meant = is_meant & ~is_unread  # as SQL can be TRUE of fields that are NULL
    if not topic.first_kind:
        return is_meant
    told = (where for _, where in topic.kinds if is_by_message(where))
    is_told = reduce(Column.__or__, map(_is_true, told), F.lit(False))
    return is_meant | (is_unread & ~is_told)


def _is_true(condition: str) -> Column:
    return F.coalesce(F.when(F.col("message").isNotNull(), try_eval(F.expr(condition))), F.lit(False))


def _read_rows(messages: DataFrame, *, decoding: Decoding, are_readable: bool = True) -> DataFrame:
    """Bronze messages as `message`, `_broken`, and the fields; if they can have many rows, a row for each.

    A message without a payload, or whose payload is broken, is one row; without `are_readable`, it is as many as can be
    read, but at least one. What no column uses is not copied into each row: neither the payload nor the array.
    """
    read = messages.transform(_read_kind, decoding=decoding)
    if not decoding.topic.rows:
        return read
    for setting in PRUNING:
        messages.sparkSession.conf.set(setting, "false")
    array = try_eval(F.struct(value_of(decoding.topic.rows, given=SOUND if are_readable else IS_PAYLOAD).alias("rows")))
    found = read.withColumn("_found", F.when(~F.col("message.is_tombstone"), array))
    if are_readable:
        found = found.withColumn("_broken", F.coalesce("_broken", _no_array(decoding.topic)))
        is_whole = F.col("message.is_tombstone") | F.col("_broken").isNotNull()
    else:
        is_whole = F.coalesce(F.size("_found.rows"), F.lit(0)) < 1
    rows = F.transform("_found.rows", lambda row, at: F.struct(at.alias("at"), row.alias(ROW)))
    whole = F.array(F.struct(F.lit(-1).alias("at"), F.lit(None).alias(ROW)))
    units = F.when(is_whole, whole).otherwise(rows)
    kept = is_whole | F.lit("payload" in _words(decoding.columns.values()))
    message = F.col("message").withField("payload", F.when(kept, F.col("message.payload")))
    fields = [f"`{name}`" for name in _used_fields(decoding)]
    each = found.select(message.alias("message"), "_broken", *fields, units.alias("_units"))
    each = each.select("message", "_broken", *fields, F.explode("_units").alias("_each"))
    position = F.col("message.position").withField("row", F.col("_each.at"))
    return each.withColumns({"message": F.col("message").withField("position", position), ROW: F.col(f"_each.{ROW}")})


def _words(texts: Iterable[str]) -> set[str]:
    return {word for text in texts for word in re.findall(r"\w+", text.lower())}


def _used_fields(decoding: Decoding) -> list[str]:
    """The fields that the SQL of a column may use."""
    words = _words(decoding.columns.values())
    return [name for name in decoding.topic.fields.names if _words([name]) <= words]


def _no_array(topic: Topic) -> Column:
    """The reason if the SQL of rows fails, with the values that it uses; else NULL."""
    words = _words([topic.rows])
    used = {name: F.col(f"`{name}`").cast("string") for name in topic.fields.names if _words([name]) <= words}
    fails = ~F.col("message.is_tombstone") & F.col("_found").isNull()
    told = told_with(f"rows: {topic.rows} gives no array", used)
    if errors := errors_in(topic.rows, SOUND):
        told = F.coalesce(*map(F.expr, errors), told)
    return F.when(fails, told)


def _read(messages: DataFrame, *, decoding: Decoding) -> DataFrame:
    """Bronze messages as `message`, `_fields` and `_broken`, the reason why a payload breaks the contract."""
    from pulsar_lakehouse.contracts.batches import SparkDecoder  # declarations load no engine

    decoder = SparkDecoder(decoding.topic, decoding.key_names)
    decoded = arrow_udf(decoder.decode, decoder.type)(*decoder.reads)  # type: ignore[call-overload]
    encrypted = _encrypted()
    message = F.struct(
        F.expr(POSITION_OF_MESSAGE).alias("position"),
        "_decoded.key",
        "event_time",
        "publish_time",
        (F.col("_decoded.is_tombstone") & encrypted.isNull()).alias("is_tombstone"),
        *ONLY_IF_REJECTED,
        *(["_decoded.unavailable", "_decoded.is_truncation"] if decoding.topic.envelope else []),
    )
    return messages.withColumn("_decoded", decoded).select(
        message.alias("message"),
        F.col("_decoded.fields").alias("_fields"),
        F.coalesce(encrypted, "_decoded.reason").alias("_broken"),
    )


def _encrypted() -> Column:
    """Over bronze's columns: with which key a message is encrypted; NULL if landing did not mark it so."""
    keys = F.json_object_keys(F.get_json_object(F.col("properties")[ENCRYPTION], "$.parts[0].keys"))
    return F.concat(F.lit("encrypted with key "), F.array_join(F.array_sort(keys), ", "))


def explain(rejected: DataFrame, *, decoding: Decoding) -> DataFrame:
    """The `message` and `reason` of rejected rows, where `reason` says which SQL fails."""
    given = rejected.select("message", F.col("reason").alias("_reason"), "message.fields.*")
    reason = F.when(F.col("_reason") == FAILS, _failures(decoding)).otherwise(F.col("_reason"))
    return given.select("message", reason.alias("reason"))


def _failures(decoding: Decoding) -> Column:
    """Names the columns whose SQL fails, with the values that they use, and the functions that do."""
    names = [*decoding.topic.fields.names, *([ROW] if decoding.topic.rows else [])]
    given = {name: F.col(f"`{name}`").cast("string") for name in names}
    given["message.properties"] = F.to_json("message.properties")
    schema, fails = decoding.schema, f"_reason = '{FAILS}'"

    def failure(name: str, value: Column) -> Column:
        sql = decoding.columns[name]
        words = {*re.findall(r"\w+", sql.lower())}
        used = {each: text for each, text in given.items() if words.issuperset(re.findall(r"\w+", each.lower()))}
        told = told_with(f"{name.lstrip('_')}: {sql} gives no {schema[name].dataType.simpleString()}", used)
        if errors := errors_in(sql, fails, TOMBSTONE):
            told = F.coalesce(*map(F.expr, errors), told)
        return F.when(try_eval(F.struct(value)).isNull(), told)

    values = decoding.values_if(fails)
    can_fail = [name for name in values if decoding.columns[name].strip("`") not in decoding.topic.fields.names]
    failures = F.array_compact(F.array(*(failure(name, values[name]) for name in can_fail)))
    # A call that failed may succeed now, such as one that had taken too long.
    return F.coalesce(F.nullif(F.concat_ws("; ", F.array_distinct(failures)), F.lit("")), F.lit(FAILS))
