"""What can be wrong with the SQL of declarations and with the types of their columns.

Spark resolves all of it on empty frames: no table and no broker is needed.
"""

from collections.abc import Iterator, Mapping

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import (
    AtomicType,
    DataType,
    DateType,
    IntegralType,
    NullType,
    StringType,
    StructType,
    TimestampType,
)

from pulsar_lakehouse.contracts.checks import Check, Mode
from pulsar_lakehouse.contracts.decoding import no_messages
from pulsar_lakehouse.errors import ConfigurationError
from pulsar_lakehouse.gold.enrichment.declaration import Enrichment, Lookup
from pulsar_lakehouse.gold.enrichment.match import Match
from pulsar_lakehouse.silver.entity import AS_IN_KEYS, IN_KEYS, TIME, Entity
from pulsar_lakehouse.spark.declared_sql import value_of, why_no_condition, why_unresolved
from pulsar_lakehouse.tables.declared import unstorable_names


def unresolved_entity(spark: SparkSession, entity: Entity) -> Iterator[str]:
    """What is wrong with an entity: a line for each mistake."""
    try:
        _ = entity.decoding.schema
    except ConfigurationError as error:
        yield from str(error).splitlines()
        return
    if wrong := list(_unstorable(entity.decoding.schema)):
        yield from wrong
        return
    mistakes = list(entity.mistakes_in_types())
    yield from mistakes
    kind = _type_of(no_messages(entity.topic), entity.deleted_at)
    if not isinstance(kind, TimestampType | DateType | StringType | NullType):
        yield f"deleted_at: {entity.deleted_at} is {kind.simpleString()}: {TIME}"
    if not mistakes:
        decoded, merged = (spark.createDataFrame([], each.schema) for each in (entity.decoding, entity.table))
        yield from _checks(entity.checks, before=decoded, after=merged)


def unresolved_enrichment(spark: SparkSession, facts: Enrichment) -> Iterator[str]:
    """What is wrong with an enrichment whose entities are right: a line for each mistake."""
    try:
        columns = facts.decoding.schema
    except ConfigurationError as error:
        yield from str(error).splitlines()
        return
    if wrong := list(_unstorable(columns)):
        yield from wrong
        return
    rows = spark.createDataFrame([], columns)
    for name in facts.keys:
        if not isinstance(columns[name].dataType, AtomicType):
            kind = columns[name].dataType.simpleString()
            yield f"keys: {name} is {kind}: must be a number, a text or a time"
    if not isinstance(columns[facts.event_time].dataType, TimestampType):
        yield f"event_time: {facts.event_time} is {columns[facts.event_time].dataType.simpleString()}: {TIME}"
    gold = spark.createDataFrame([], facts.gold({each.name: each.entity.table.schema for each in facts.joins}).schema)
    yield from _checks(facts.checks, before=rows, after=gold)
    for lookup in facts.lookups:
        yield from _lookup(spark, lookup, gold)
    for match in facts.matches:
        yield from _match(match, columns)


def _unstorable(columns: StructType) -> Iterator[str]:
    """Columns with names in their structs that no table can have."""
    for column in columns:
        for name in unstorable_names(column.dataType):
            what = f"has a field named `{name}`, which no table can have"
            yield f"column {column.name} {what}: take its fields one by one, or to_json() of it"


def _checks(checks: Mapping[str, Check], *, before: DataFrame, after: DataFrame) -> Iterator[str]:
    """What is wrong with checks. Those that quarantine are evaluated before rows are merged or joined."""
    for name, check in checks.items():
        rows = before if check.mode is Mode.QUARANTINE else after
        yield from filter(None, [why_no_condition(rows, f"check {name}", check.sql)])


def _lookup(spark: SparkSession, lookup: Lookup, gold: DataFrame) -> Iterator[str]:
    """What is wrong with a lookup. Its columns are in gold, also those of the rows that earlier lookups find."""
    entity = lookup.entity
    for path, name, key in zip(lookup.paths, entity.keys, entity.key_types, strict=True):
        if not _is_alike(kind := _type_of(gold, path), key):
            is_of = f"{path} is {kind.simpleString()}"
            yield f"lookup {lookup.name}: {is_of}, but {name} of {entity.name} is {key.simpleString()}"
    if lookup.merged_into is not None:
        [key] = entity.key_types
        rows, named = spark.createDataFrame([], entity.table.schema), f"lookup {lookup.name}: merged_into"
        if why := why_unresolved(rows, named, lookup.merged_into):
            yield why
        elif not _is_alike(kind := _type_of(rows, lookup.merged_into), key):
            right = f"must be {key.simpleString()}, as {lookup.key} of {entity.name} is"
            yield f"{named}: {lookup.merged_into} is {kind.simpleString()}: {right}"


def _match(match: Match, columns: StructType) -> Iterator[str]:
    """What is wrong with a match of facts with these columns."""
    kinds, named = match.entity.decoding.schema, f"match {match.name}"
    for path, name in zip(match.paths, match.columns, strict=True):
        kind, other = columns[path].dataType, kinds[name].dataType
        if not isinstance(other, IN_KEYS):
            yield f"{named}: by {name} is {other.simpleString()}: must be {AS_IN_KEYS}"
        elif not _is_alike(kind, other):
            is_of = f"{path} is {kind.simpleString()}"
            yield f"{named}: {is_of}, but {name} of {match.entity.name} is {other.simpleString()}"
    if not isinstance(kind := kinds[match.time].dataType, TimestampType):
        yield f"{named}: time: {match.time} is {kind.simpleString()}: {TIME}"


def _type_of(rows: DataFrame, sql: str) -> DataType:
    return rows.select(value_of(sql)).schema[0].dataType


def _is_alike(kind: DataType, other: DataType) -> bool:
    """Whether values of both types can be the same key: only integers may be of different sizes."""
    return kind == other or (isinstance(kind, IntegralType) and isinstance(other, IntegralType))
