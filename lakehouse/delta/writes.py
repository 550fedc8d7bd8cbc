"""Writes rows to Delta tables: a few from this process, many by Spark.

Before Spark commits a few rows, its driver plans and compiles for seconds. delta-rs does not: it makes the same commit
in a tenth of the time.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NamedTuple

import obstore
import pyarrow as pa
import pyarrow.compute as pc
from deltalake import ColumnProperties, DeltaTable, WriterProperties, write_deltalake
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from lakehouse.delta.tables import (
    commit_file,
    delta_table,
    is_known_empty,
    of_keys,
    pin_table,
    table_schema,
    with_columns_of,
)
from lakehouse.settings import Settings
from lakehouse.storage import folder, table_options

FEW = 50_000
"""Rows up to this number are few, if they are light."""
LIGHT = 16 * 2**20
"""Bytes that few rows may take in Spark's memory: all of them pass through the driver."""

_DIRECTLY = "lakehouse.writesDirectly"


class Within(NamedTuple):
    """A condition that rows of a table meet if others can match them, so that most of its files are not read."""

    rows: Column
    """Over the table's columns."""
    held: Column
    """The same in a MERGE, in which the table is `held`."""
    sql: str
    """The same as SQL of delta-rs, which may say less, or nothing."""


@contextmanager
def writes_of(rows: DataFrame, number: int) -> Iterator[None]:
    """In the block, at most `number` rows are written, and they come from these, which are cached and were counted."""
    spark = rows.sparkSession
    before = _is_direct(spark)
    spark.conf.set(_DIRECTLY, str(number <= FEW and _size(rows) <= LIGHT).lower())
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

    It rounds the bounds of decimals, and leaves NaN out of those of floats. By such bounds, Spark would skip a file
    that has what it looks for. So these columns get none, which delta-rs can't do for those within structs.
    """
    if not _is_direct(rows.sparkSession):
        return None
    table = DeltaTable(settings.table_path(name), storage_options=table_options(settings))
    structs = (field for field in _columns(table) if pa.types.is_struct(field.type))
    has_bounds = "delta.dataSkippingStatsColumns" not in table.metadata().configuration
    return None if has_bounds and any(_has_inexact(field.type) for field in structs) else table


def _columns(table: DeltaTable) -> pa.Schema:
    return pa.schema(table.schema().to_arrow())


def _has_inexact(kind: pa.DataType) -> bool:
    """Whether bounds of values of a type may not be exact."""
    if pa.types.is_struct(kind):
        return any(_has_inexact(field.type) for field in kind)
    return bool(pa.types.is_decimal(kind) or pa.types.is_floating(kind))


def _writer_properties(table: DeltaTable) -> WriterProperties:
    without = [field.name for field in _columns(table) if _has_inexact(field.type)]
    none = ColumnProperties(statistics_enabled="NONE")
    return WriterProperties(compression="SNAPPY", column_properties=dict.fromkeys(without, none))


def append(rows: DataFrame, settings: Settings, name: str) -> None:
    spark, table = rows.sparkSession, _table_to_write(rows, settings, name)
    if table is None:
        rows.write.format("delta").mode("append").save(settings.table_path(name))
    elif (found := rows.to(table_schema(spark, settings, name)).toArrow()).num_rows:
        write_deltalake(table, found, mode="append", writer_properties=_writer_properties(table))
        _write_checksum(settings, name, table)


@dataclass(frozen=True, kw_only=True)
class Merge:
    """What a MERGE does with the rows of a table, `held` in SQL, and others, `new`, that are equal in the columns `on`.

    A row of the table is deleted if `delete`, SQL, is TRUE, and else gets the values of `update`, SQL by column. A row
    that the table lacks is inserted with the values of `insert`, if `insert_if` is TRUE.
    """

    on: Sequence[str]
    within: Within | None = None
    delete: str | None = None
    update: Mapping[str, str] | None = None
    insert: Mapping[str, str] | None = None
    insert_if: str = "true"

    @property
    def condition(self) -> str:
        return " AND ".join(f"held.`{column}` = new.`{column}`" for column in self.on)


def merge(rows: DataFrame, settings: Settings, name: str, how: Merge) -> None:
    """MERGE the rows into the table. They may be evaluated twice, and should not be empty: Spark would write a file."""
    if (table := _table_to_write(rows, settings, name)) is not None:
        _merge_directly(rows.toArrow(), settings, name, table, how)
        return
    condition = F.expr(how.condition) if how.within is None else how.within.held & F.expr(how.condition)
    builder = delta_table(rows.sparkSession, settings, name).alias("held").merge(rows.alias("new"), condition)
    if how.delete is not None:
        builder = builder.whenMatchedDelete(how.delete)
    if how.update is not None:
        builder = builder.whenMatchedUpdate(set=dict(how.update))
    if how.insert is not None:
        builder = builder.whenNotMatchedInsert(how.insert_if, values=dict(how.insert))
    builder.execute()


def _merge_directly(rows: pa.Table, settings: Settings, name: str, table: DeltaTable, how: Merge) -> None:
    if not rows.num_rows:
        return
    near = [how.within.sql] if how.within else [_near(column, rows[column]) for column in how.on]
    condition = " AND ".join([*filter(None, near), how.condition])
    merger = table.merge(rows, condition, "new", "held", writer_properties=_writer_properties(table))
    if how.delete is not None:
        merger = merger.when_matched_delete(how.delete)
    if how.update is not None:
        merger = merger.when_matched_update(dict(how.update))
    if how.insert is not None:
        merger = merger.when_not_matched_insert(dict(how.insert), how.insert_if)
    merger.execute()
    _write_checksum(settings, name, table)


def _near(column: str, values: pa.ChunkedArray) -> str:
    """SQL by which delta-rs skips files: a column of the table is between the lowest and highest of the values.

    It is empty if they are no integers.
    """
    if not pa.types.is_integer(values.type) or values.null_count == len(values):
        return ""
    low, high = widened(*(end.as_py() for end in pc.min_max(values).values()))
    return f"held.`{column}` BETWEEN {low} AND {high}"


def widened(low: int, high: int) -> tuple[int, int]:
    """Round bounds outwards, to a power of two that is at least eight times their span.

    So the log does not tell whose keys they are, and near keys of small batches have the same bounds.
    """
    step = 8 << (high - low).bit_length()
    return max(low // step * step, -(2**63)), min((high // step + 1) * step - 1, 2**63 - 1)


def upsert(
    rows: DataFrame, settings: Settings, name: str, *, on: Sequence[str], update: Sequence[str] | None = None
) -> None:
    """Insert the rows that are new by the columns `on`, and update the others: the columns `update`, by default all.

    Columns that the rows lack count as NULL. `rows` may be evaluated twice. It should not be empty: even then, Spark
    writes a file.
    """
    spark = rows.sparkSession
    rows = rows.transform(with_columns_of, pin_table(spark, settings, name))
    if is_known_empty(spark, settings, name):  # a MERGE would cost several times as much
        append(rows.to(table_schema(spark, settings, name)), settings, name)  # `to` casts the columns, as a MERGE does
        return
    values = {column: f"new.`{column}`" for column in rows.columns}
    updated = {column: values[column] for column in update or rows.columns}
    merge(rows, settings, name, Merge(on=on, update=updated, insert=values))


def append_missing(rows: DataFrame, settings: Settings, name: str, *, on: Sequence[str]) -> None:
    """Append the rows that the table lacks, by the columns `on`. A MERGE has several times the fixed cost of this."""
    held = of_keys(pin_table(rows.sparkSession, settings, name).select(*on), rows.select(*on))
    append(rows.join(held, on=list(on), how="left_anti").select(*rows.columns), settings, name)


def _write_checksum(settings: Settings, name: str, table: DeltaTable) -> None:
    """Write the checksum of the table's version, as Spark does with each commit.

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
            **{key: value for key, value in features.items() if value},
        },
    }
    file = commit_file(table.version()).replace(".json", ".crc")
    obstore.put(folder(settings, settings.table_path(name)), file, json.dumps(checksum).encode())
