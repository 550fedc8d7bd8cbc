"""What can be wrong with the SQL of declarations and with the types of their columns.

Spark resolves all of it on empty frames: no table and no broker is needed.
"""

from collections.abc import Iterator, Mapping

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import (
    AtomicType,
    BooleanType,
    DataType,
    DateType,
    IntegralType,
    NullType,
    StringType,
    StructType,
    TimestampType,
)

from expectations.suites import Kind, Rule, Suite, with_figures
from gold.enrichment.declaration import Enrichment, Lookup
from lakehouse.contracts.decoding import no_messages
from lakehouse.errors import ConfigurationError
from lakehouse.spark.declared_sql import reason_of, why_unresolved
from silver.entity import Entity

TIME = "must be a TIMESTAMP, such as timestamp_millis(...)"


def unresolved_entity(entity: Entity) -> Iterator[str]:
    """What is wrong with an entity: a line for each mistake."""
    try:
        _ = entity.decoding.schema
    except ConfigurationError as error:
        yield from str(error).splitlines()
        return
    yield from entity.mistakes_in_types()
    kind = _type_of(no_messages(entity.topic.fields), entity.deleted_at)
    if not isinstance(kind, TimestampType | DateType | StringType | NullType):
        yield f"deleted_at: {entity.deleted_at} is {kind.simpleString()}: {TIME}"


def unresolved_enrichment(spark: SparkSession, facts: Enrichment) -> Iterator[str]:
    """What is wrong with an enrichment whose entities are right: a line for each mistake."""
    try:
        columns = facts.decoding.schema
    except ConfigurationError as error:
        yield from str(error).splitlines()
        return
    rows = spark.createDataFrame([], columns)
    for name in facts.keys:
        if not isinstance(columns[name].dataType, AtomicType):
            kind = columns[name].dataType.simpleString()
            yield f"keys: {name} is {kind}: must be a number, a text or a time"
    if not isinstance(columns[facts.event_time].dataType, TimestampType):
        yield f"event_time: {facts.event_time} is {columns[facts.event_time].dataType.simpleString()}: {TIME}"
    for name, sql in facts.rules.items():
        yield from _condition(rows, f"rule {name}", sql)
    for lookup in facts.lookups:
        yield from _lookup(spark, lookup, rows)


def _lookup(spark: SparkSession, lookup: Lookup, facts: DataFrame) -> Iterator[str]:
    entity = lookup.entity
    [key] = entity.key_types
    if not _is_alike(kind := _type_of(facts, lookup.on), key):
        is_of = f"{lookup.on} is {kind.simpleString()}"
        yield f"lookup {lookup.name}: {is_of}, but {lookup.key} of {entity.name} is {key.simpleString()}"
    if lookup.merged_into is not None:
        rows, named = spark.createDataFrame([], entity.table.schema), f"lookup {lookup.name}: merged_into"
        if why := why_unresolved(rows, named, lookup.merged_into):
            yield why
        elif not _is_alike(kind := _type_of(rows, lookup.merged_into), key):
            right = f"must be {key.simpleString()}, as {lookup.key} of {entity.name} is"
            yield f"{named}: {lookup.merged_into} is {kind.simpleString()}: {right}"


def unresolved_suite(spark: SparkSession, suite: Suite, tables: Mapping[str, StructType]) -> Iterator[str]:
    """What is wrong with a suite: a line for each mistake. `tables` are the columns of all tables that are right."""
    rows = spark.createDataFrame([], tables[suite.table])
    for name in suite.key:
        if why := why_unresolved(rows, "key", name):
            yield why
    for rule in suite.rules:
        yield from _rule(rows, rule, tables)


def _rule(rows: DataFrame, rule: Rule, tables: Mapping[str, StructType]) -> Iterator[str]:
    named = f"rule {rule.name}"
    match rule.kind:
        case Kind.ROW:
            yield from _condition(rows, named, rule.holds)
        case Kind.KEY:
            yield from filter(None, (why_unresolved(rows, named, name) for name in rule.holds.split(", ")))
        case Kind.REFERENCE:
            key = rule.holds.rpartition(".")[2]
            yield from filter(None, [why_unresolved(rows, named, rule.holds)])
            if rule.to in tables and key not in tables[rule.to].names:
                yield f"{named}: {key} is not a column of {rule.to}; there are {', '.join(tables[rule.to].names)}"
        case Kind.TABLE:
            try:
                kind = rows.agg(F.expr(with_figures(rule.holds, {}))).schema[0].dataType
            except AnalysisException as error:
                yield f"{named}: {rule.holds}: {reason_of(error)}"
            else:
                yield from _unless_boolean(named, rule.holds, kind)


def _condition(rows: DataFrame, named: str, sql: str) -> Iterator[str]:
    if why := why_unresolved(rows, named, sql):
        yield why
    else:
        yield from _unless_boolean(named, sql, _type_of(rows, sql))


def _unless_boolean(named: str, sql: str, kind: DataType) -> Iterator[str]:
    if not isinstance(kind, BooleanType | NullType):
        yield f"{named}: {sql} is {kind.simpleString()}: must be a condition, which is TRUE or not"


def _type_of(rows: DataFrame, sql: str) -> DataType:
    return rows.select(F.expr(sql)).schema[0].dataType


def _is_alike(kind: DataType, other: DataType) -> bool:
    """Whether values of both types can be the same key: only integers may be of different sizes."""
    return kind == other or (isinstance(kind, IntegralType) and isinstance(other, IntegralType))
