"""Writes rows to Delta tables: a few from this process, by delta-rs, and many by Spark.

Before Spark commits a few rows, its driver plans and compiles for seconds. delta-rs does not: it makes the same commit
in a tenth of the time.
"""

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import date
from typing import Any, NamedTuple

import obstore
import pyarrow as pa
import pyarrow.compute as pc
from deltalake import (
    ColumnProperties,
    CommitProperties,
    DeltaTable,
    Schema,
    Transaction,
    WriterProperties,
    write_deltalake,
)
from deltalake.exceptions import DeltaError
from obstore.exceptions import BaseError
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from pulsar_lakehouse.delta.reads import Ranges, bytes_of, columns_of, ends_of, files_within, is_as_of_spark, stored
from pulsar_lakehouse.delta.tables import (
    USER_METADATA,
    Table,
    commit_file,
    delta_table,
    of_keys,
    pin_table,
    with_columns_of,
)
from pulsar_lakehouse.settings import Settings, is_remote
from pulsar_lakehouse.storage import folder
from pulsar_lakehouse.tables.lake import Lake

MAX_ROWS = 50_000
"""Rows up to this number are few, if they are light."""
MAX_BYTES = 16 * 2**20
"""Bytes that few rows may take in Spark's memory: all of them pass through the driver."""
MAX_READ = 64 * 2**20
"""Bytes of the files that a MERGE may read: delta-rs holds their rows in memory, which takes four times as much."""

_DIRECTLY = "lakehouse.writesDirectly"


class Within(NamedTuple):
    """A condition that rows of the table meet if a MERGE can match them, so that most of its files are not read."""

    held: Column
    """Over the table as `held`."""
    ranges: Ranges
    """What it says of single columns."""


@contextmanager
def writes_of(rows: DataFrame, number: int | None = None) -> Iterator[None]:
    """In the block, what is written has at most `number` rows, none larger than these. They are cached.

    `number` is that of `rows`, unless it is known to be less. These are counted if it is not given.
    """
    spark = rows.sparkSession
    few = (rows.count() if number is None else number) <= MAX_ROWS and _size(rows) <= MAX_BYTES
    before = _is_direct(spark)
    spark.conf.set(_DIRECTLY, str(few).lower())
    try:
        yield
    finally:
        spark.conf.set(_DIRECTLY, str(before).lower())


def _size(rows: DataFrame) -> int:
    """The bytes that cached rows take; an estimate, often far too large, of others."""
    plan = rows.select("*")._jdf.queryExecution().optimizedPlan()
    return int(plan.stats().sizeInBytes())


def _is_direct(spark: SparkSession) -> bool:
    return spark.conf.get(_DIRECTLY, "false") == "true"


def _table_to_write(rows: DataFrame, settings: Settings, name: str) -> DeltaTable | None:
    """The table, if the rows are to be written by delta-rs.

    In an object store they are not: where the answer to a commit is lost, Spark's log finds that it was its own.

    delta-rs rounds the bounds of decimals, and leaves NaN out of those of floats. By such bounds, Spark would skip a
    file that has what it looks for. So these columns get none, which delta-rs can't do for those within structs.
    """
    if not _is_direct(rows.sparkSession) or is_remote(settings.warehouse_root):
        return None
    table = stored(settings, name)
    if not is_as_of_spark(table):
        return None
    structs = (field for field in columns_of(table) if pa.types.is_struct(field.type))
    has_bounds = "delta.dataSkippingStatsColumns" not in table.metadata().configuration
    return None if has_bounds and any(_has_inexact(field.type) for field in structs) else table


def _has_inexact(kind: pa.DataType) -> bool:
    """Whether bounds of values of a type may not be exact."""
    if pa.types.is_struct(kind):
        return any(_has_inexact(field.type) for field in kind)
    return bool(pa.types.is_decimal(kind) or pa.types.is_floating(kind))


def writer_properties(table: DeltaTable) -> WriterProperties:
    """How delta-rs writes the files of a table: compressed, and without bounds that are not exact."""
    without = [field.name for field in columns_of(table) if _has_inexact(field.type)]
    none = ColumnProperties(statistics_enabled="NONE")
    return WriterProperties(compression="SNAPPY", column_properties=dict.fromkeys(without, none))


def create(settings: Settings, table: Table, properties: Mapping[str, str]) -> bool:
    """Create a table with all these properties without Spark; returns whether that could be done."""
    if is_remote(settings.warehouse_root):
        return False
    try:
        created = DeltaTable.create(
            settings.table_path(table.name),
            Schema.from_json(table.schema.json()),
            mode="ignore",
            partition_by=list(table.partition_by),
            configuration=dict(properties),
            raise_if_key_not_exists=False,  # some properties are our own
        )
    except Exception:  # such as for a type that only Spark knows; of other faults, Spark tells best
        return False
    _write_checksum(settings, table.name, created)
    return True


def append(rows: DataFrame, settings: Settings, name: str) -> None:
    spark, table = rows.sparkSession, _table_to_write(rows, settings, name)
    if table is None:
        rows.write.format("delta").mode("append").save(settings.table_path(name))
    elif (found := rows.to(Lake(spark, settings).table(name).schema).toArrow()).num_rows:
        append_arrow(settings, name, found)


def append_values(settings: Settings, name: str, rows: Sequence[Mapping[str, Any]]) -> None:
    """Append rows, without Spark. A column that a row lacks is NULL; a map is a list of pairs."""
    append_arrow(settings, name, pa.Table.from_pylist(rows, schema=columns_of(stored(settings, name))))


def append_arrow(settings: Settings, name: str, rows: pa.Table) -> None:
    """Append rows that have all columns of the table, without Spark."""
    _append(settings, name, stored(settings, name), rows)


def append_batch(settings: Settings, name: str, rows: pa.Table, batch: tuple[str, int], *, seen: DeltaTable) -> None:
    """Like `append_arrow`, as the batch of a stream, given by the stream's id and a number.

    Spark does not append it again, and this fails if the table got a batch of the stream after it was `seen`.
    """
    noted = CommitProperties(app_transactions=[Transaction(*batch, last_updated=int(time.time() * 1000))])
    _append(settings, name, seen, rows, noted)


def _append(
    settings: Settings, name: str, table: DeltaTable, rows: pa.Table, noted: CommitProperties | None = None
) -> None:
    with _named(name):
        write_deltalake(table, rows, mode="append", writer_properties=writer_properties(table), commit_properties=noted)
    _write_checksum(settings, name, table)


@contextmanager
def _named(name: str) -> Iterator[None]:
    """Raises what delta-rs raises as a DeltaError that names the table."""
    try:
        yield
    except Exception as error:  # some of them are of no class of their own
        raise DeltaError(f"{name}: {error}") from error


@dataclass(frozen=True, kw_only=True)
class Merge:
    """What a MERGE does with the rows of a table, `held` in SQL, and others, `new`, that are equal in the columns `on`.

    A row of the table is deleted if `delete`, SQL or whether at all, is TRUE, and else gets the values of `update`, SQL
    by column. A row that the table lacks is inserted with the values of `insert`, if `insert_if` is TRUE.
    """

    on: Sequence[str]
    within: Within | None = None
    delete: str | bool = False
    update: Mapping[str, str] | None = None
    insert: Mapping[str, str] | None = None
    insert_if: str = "true"

    @property
    def condition(self) -> str:
        return " AND ".join(f"held.`{column}` = new.`{column}`" for column in self.on)


def merge(rows: DataFrame, settings: Settings, name: str, how: Merge) -> None:
    """MERGE the rows into the table. They may be evaluated twice, and should not be empty: Spark would write a file.

    Two of them can be equal in the columns `on` only if all that match are deleted.
    """
    if (table := _table_to_write(rows, settings, name)) is not None:
        found = (rows.dropDuplicates(list(how.on)) if how.delete is True else rows).toArrow()
        near = how.within.ranges if how.within else _ranges(found, how.on)
        if bytes_of(files_within(table, near)) <= MAX_READ:
            _merge_directly(
                found, settings, name, table, how, near, reason=rows.sparkSession.conf.get(USER_METADATA, "")
            )
            return
    condition = F.expr(how.condition) if how.within is None else how.within.held & F.expr(how.condition)
    builder = delta_table(rows.sparkSession, settings, name).alias("held").merge(rows.alias("new"), condition)
    if how.delete:
        builder = builder.whenMatchedDelete(None if how.delete is True else how.delete)
    if how.update is not None:
        builder = builder.whenMatchedUpdate(set=dict(how.update))
    if how.insert is not None:
        builder = builder.whenNotMatchedInsert(how.insert_if, values=dict(how.insert))
    builder.execute()


def _ranges(rows: pa.Table, on: Sequence[str]) -> dict[str, tuple[Any, Any]]:
    """The lowest and highest values of the columns that are integers."""
    integers = (name for name in on if pa.types.is_integer(rows[name].type) and rows[name].null_count < len(rows))
    return {name: widened(*ends_of(rows[name])) for name in integers}


def widened(low: int, high: int) -> tuple[int, int]:
    """Round bounds outwards, to a power of two that is at least eight times their span.

    So near keys of small batches have the same bounds, and the log does not simply list them.
    """
    step = 8 << (high - low).bit_length()
    return max(low // step * step, -(2**63)), min((high // step + 1) * step - 1, 2**63 - 1)


def _merge_directly(
    rows: pa.Table, settings: Settings, name: str, table: DeltaTable, how: Merge, near: Ranges, *, reason: str | None
) -> None:
    if not rows.num_rows:
        return
    before, kinds = table.version(), columns_of(table)
    within = [_between(column, kinds.field(column).type, *ends) for column, ends in near.items()]
    condition = " AND ".join([*within, how.condition])
    noted = CommitProperties(custom_metadata={"userMetadata": reason}) if reason else None
    properties = writer_properties(table)
    merger = table.merge(rows, condition, "new", "held", writer_properties=properties, commit_properties=noted)
    if how.delete:
        merger = merger.when_matched_delete(None if how.delete is True else how.delete)
    if how.update is not None:
        merger = merger.when_matched_update(dict(how.update))
    if how.insert is not None:
        merger = merger.when_not_matched_insert(dict(how.insert), how.insert_if)
    with _named(name):
        merger.execute()
    if table.version() > before:
        _write_checksum(settings, name, table)


def _between(column: str, kind: pa.DataType, low: Any, high: Any) -> str:
    """SQL of delta-rs. Integers are kept to those that the column can have, which are the ones it can compare with."""
    if isinstance(low, int):
        most = 2 ** (kind.bit_width - 1) - 1
        low, high = max(low, -most - 1), min(high, most)
    elif isinstance(low, date):
        low, high = (f"DATE '{end}'" for end in (low, high))
    else:
        low, high = ("'{}'".format(end.replace("'", "''")) for end in (low, high))
    return f"held.`{column}` BETWEEN {low} AND {high}"


def upsert(
    rows: DataFrame, settings: Settings, name: str, *, on: Sequence[str], update: Sequence[str] | None = None
) -> None:
    """Insert the rows that are new by the columns `on`, and update the others: the columns `update`, by default all.

    Columns that the rows lack count as NULL. `rows` may be evaluated twice. It should not be empty: even then, Spark
    writes a file.
    """
    spark = rows.sparkSession
    rows = rows.transform(with_columns_of, Lake(spark, settings).table(name).pin().rows)
    if Lake(spark, settings).table(name).is_known_empty:  # a MERGE would cost several times as much
        append(
            rows.to(Lake(spark, settings).table(name).schema), settings, name
        )  # `to` casts the columns, as a MERGE does
        return
    values = {column: f"new.`{column}`" for column in rows.columns}
    updated = {column: values[column] for column in update or rows.columns}
    merge(rows, settings, name, Merge(on=on, update=updated, insert=values))


def append_missing(rows: DataFrame, settings: Settings, name: str, *, on: Sequence[str]) -> None:
    """Append the rows that the table lacks, by the columns `on`. A MERGE has several times the fixed cost of this."""
    held = of_keys(pin_table(rows.sparkSession, settings, name).select(*on), rows.select(*on))
    append(rows.join(held, on=list(on), how="left_anti").select(*rows.columns), settings, name)


def _write_checksum(settings: Settings, name: str, table: DeltaTable) -> None:
    """Write the checksum of the table's version, as Spark does with each commit. It may be missing.

    Delta takes from it what it would otherwise read the log for: schema, properties, and whether there are rows.
    https://github.com/delta-io/delta/blob/master/PROTOCOL.md#version-checksum-file
    """
    metadata, protocol, sizes = table.metadata(), table.protocol(), pa.table(table.get_add_actions())["size_bytes"]
    features = {"readerFeatures": protocol.reader_features, "writerFeatures": protocol.writer_features}
    checksum = {
        "tableSizeBytes": pc.sum(sizes).as_py() or 0,
        "numFiles": len(sizes),
        "numMetadata": 1,
        "numProtocol": 1,
        "metadata": {
            "id": metadata.id,
            "format": {"provider": "parquet", "options": {}},
            "schemaString": table.schema().to_json(),
            "partitionColumns": metadata.partition_columns,
            "configuration": metadata.configuration,
            "createdTime": metadata.created_time,
        },
        "protocol": {
            "minReaderVersion": protocol.min_reader_version,
            "minWriterVersion": protocol.min_writer_version,
            **{key: value for key, value in features.items() if value is not None},
        },
    }
    file = commit_file(table.version()).replace(".json", ".crc")
    with suppress(BaseError, OSError):
        obstore.put(folder(settings, settings.table_path(name)), file, json.dumps(checksum).encode())
