"""Check declared tables before anything runs: Spark must resolve them, and they must be refreshable as declared."""

from collections.abc import Collection, Mapping, Sequence

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql.types import StructField, StructType
from rich.filesize import decimal

from pulsar_lakehouse.contracts.avro_schemas import avro_record
from pulsar_lakehouse.contracts.checks import resolve
from pulsar_lakehouse.errors import ConfigurationError
from pulsar_lakehouse.gold.enrichment.declaration import BACKFILLS
from pulsar_lakehouse.gold.sql.declaration import SqlTable
from pulsar_lakehouse.gold.sql.header import CHECK, INCREMENTAL
from pulsar_lakehouse.gold.sql.statements import (
    FullOnlyError,
    Statement,
    located,
    parse,
    refuse_full_only,
    refuse_sums_of_doubles,
    refuse_what_is_read_otherwise,
    select,
    touched,
)
from pulsar_lakehouse.gold.sql.types import POSTGRES_TYPES
from pulsar_lakehouse.inspection.row_counts import rows_and_bytes
from pulsar_lakehouse.near import did_you_mean
from pulsar_lakehouse.spark.comparing import has_map
from pulsar_lakehouse.tables.declared import NAME, unstorable_names
from pulsar_lakehouse.tables.lake import Lake
from pulsar_lakehouse.tables.stored import existing_tables


def check_declarations(
    lake: Lake, tables: Sequence[SqlTable], declared: Mapping[str, str], *, unknown: Collection[str] = ()
) -> tuple[dict[str, StructType], list[str]]:
    """Parse and resolve all tables in the given order, without reading rows.

    Returns their columns by table name, and a line, with file and line, for each table that can't be refreshed as
    declared. A source is an earlier one of the tables, a `declared` one (its columns as DDL, by name), or another that
    exists. Tables that are made from an `unknown` one, or from one of those lines, are left out.
    """
    known: dict[str, StructType] = {}
    wrong: dict[str, str] = dict.fromkeys(unknown, "")
    for table in tables:
        if not wrong.keys().isdisjoint(table.sources):
            wrong[table.name] = ""
            continue
        try:
            sources = {name: _nothing_of(lake, table, name, declared, known) for name in table.sources}
            known[table.name] = checked(lake, parse(table), sources).schema
        except ConfigurationError as error:
            wrong[table.name] = str(error)
    return known, list(filter(None, wrong.values()))


def checked(lake: Lake, statement: Statement, sources: Mapping[str, DataFrame]) -> DataFrame:
    """The rows that the SELECT returns over these sources.

    Raises ConfigurationError, with file and line, if the table can't be refreshed as declared.
    """
    rows = select(lake.spark, statement, sources)
    table = statement.table
    for key in table.keys:
        if key not in rows.columns:
            raise ConfigurationError(f"{table.at}:1: keys: {key} is not a column of the SELECT")
    for column in rows.schema:
        _refuse_column(statement, column)
    for name, check in table.checks.items():
        resolve({name: check}, over=rows.schema, within=table.at_entry(CHECK, name))
    if table.refresh == INCREMENTAL:
        try:
            _refuse_full_only(lake, statement, sources, rows)
        except FullOnlyError as error:
            raise ConfigurationError(f"{error}{_cost_of_full(lake, table)}") from None
    return rows


def _refuse_full_only(lake: Lake, statement: Statement, sources: Mapping[str, DataFrame], rows: DataFrame) -> None:
    refuse_full_only(statement, sources, rows)
    try:
        refuse_what_is_read_otherwise(lake.spark, statement, sources, rows)
    except PySparkException as error:  # a literal fails, because Spark evaluates it already
        raise ConfigurationError(located(statement, error)) from None
    touched(lake.spark, statement, sources, sources)
    refuse_sums_of_doubles(lake.spark, statement, sources)
    for name in statement.table.sources:
        if name.startswith(("bronze.", "quarantine.", BACKFILLS.name)) or (
            lake.table(name).exists() and not lake.table(name).has_change_feed
        ):
            raise FullOnlyError(f"{statement.table.at}:1: {name} has no change data feed: declare `refresh: full`")


def _cost_of_full(lake: Lake, table: SqlTable) -> str:
    """What a full refresh reads each time, of the sources that exist."""
    sources = existing_tables(lake.settings, (name for name in table.sources if lake.table(name).exists()))
    sizes = {name: rows_and_bytes(each) for name, each in sources}
    read = [f"{name} (rows: {rows:,}, {decimal(size)})" for name, (rows, size) in sizes.items()]
    return f"; it reads all of {', '.join(read)} each time" if read else ""


def _refuse_column(statement: Statement, column: StructField) -> None:
    table = statement.table
    node, kind = statement.projections.get(column.name, statement.tree), column.dataType.simpleString()
    if not NAME.fullmatch(column.name):  # sinks reserve names that begin with _ for the change feed
        raise statement.wrong(
            node, f"{column.name}: must be named with AS: lower-case letters, digits and _, after a letter"
        )
    for name in unstorable_names(column.dataType):
        raise statement.wrong(node, f"{column.name} has a field named `{name}`, which no table can have")
    if has_map(column.dataType):
        raise statement.wrong(node, f"{column.name} is a map, which can't be compared: use to_json() or its fields")
    if table.postgres and type(column.dataType) not in POSTGRES_TYPES:
        raise statement.wrong(node, f"{column.name} is {kind}, which can't be published to Postgres")
    if table.topic:
        try:
            avro_record("Row", StructType([column]))
        except ConfigurationError:
            raise statement.wrong(
                node, f"{column.name} is {kind}, which can't be published to a topic: cast it to DOUBLE or STRING"
            ) from None


def _nothing_of(
    lake: Lake, table: SqlTable, name: str, declared: Mapping[str, str], known: Mapping[str, StructType]
) -> DataFrame:
    """An empty frame with the columns of a source."""
    columns: StructType | str | None = known.get(name) or declared.get(name)
    if columns is None and lake.table(name).exists():
        columns = lake.table(name).schema
    if columns is None:
        names = sorted({*declared, *known})
        meant = did_you_mean(name, names)
        raise ConfigurationError(
            f"{table.at_source(name)}: {name}: no such table; declared tables: {', '.join(names) or 'none'}{meant}"
        )
    return lake.spark.createDataFrame([], columns)
