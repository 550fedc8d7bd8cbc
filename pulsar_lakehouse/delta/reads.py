"""Finds a few rows of Delta tables, by their keys or times, and reads small tables, without Spark.

However few rows there are, Spark's driver plans each scan of a table for some 0.2 seconds, and runs a job to choose its
files. deltalake knows the files at once, and Arrow reads them.
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import UTC, date, datetime, timedelta
from functools import reduce
from types import MappingProxyType
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError
from pyarrow.dataset import Expression, Scanner
from pyarrow.fs import LocalFileSystem, SubTreeFileSystem
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_type
from pyspark.sql.types import BooleanType, DataType, DateType, IntegralType, StringType, StructType

from pulsar_lakehouse.delta.datasets import dataset_of, files_of
from pulsar_lakehouse.delta.kept_keys import KeptKeys
from pulsar_lakehouse.delta.tables import Pinned, of_keys
from pulsar_lakehouse.settings import Settings, is_remote
from pulsar_lakehouse.storage import table_options
from pulsar_lakehouse.tables.lake import Lake

MAX_READ = 256 * 2**20
"""Bytes of the files that are read here as a whole. Of what Spark needs for more, planning is the smaller part."""
SMALL = 4 * 2**20
"""Bytes of the files of a small table."""
MAX_FOUND = 16 * 2**20
"""Bytes of rows that are brought to Spark: all of them pass through its driver."""
KEPT_KEYS = KeptKeys()
FEATURES = {"appendOnly", "invariants", "checkConstraints", "changeDataFeed", "generatedColumns"}
"""The features of tables that deltalake reads and writes as Spark does."""

Ranges = Mapping[str, tuple[Any, Any]]
"""By column, its lowest and highest value: integers, dates, times or texts. None is an open end above."""
ANYWHERE: Ranges = MappingProxyType({})


def stored(settings: Settings, name: str, version: int | None = None) -> DeltaTable:
    """Like `stored_table`, whose module loads DuckDB."""
    return DeltaTable(settings.table_path(name), version=version, storage_options=table_options(settings))


def is_as_of_spark(table: DeltaTable) -> bool:
    """Whether deltalake reads and writes a table as Spark does."""
    is_mapped = table.metadata().configuration.get("delta.columnMapping.mode", "none") != "none"
    return not is_mapped and not set(table.protocol().writer_features or ()) - FEATURES


def columns_of(table: DeltaTable) -> pa.Schema:
    return pa.schema(table.schema().to_arrow())


def rows_of_keys(
    pinned: Pinned,
    settings: Settings,
    keys: pa.Table,
    *,
    columns: Sequence[str] | None = None,
    within: Ranges = ANYWHERE,
    near: Column | None = None,
) -> DataFrame:
    """The rows of a table that have one of these few keys, in columns of the same names; NULL counts as a key.

    `columns`, by default all, have those of the key. `within` says where such rows can be, and so does `near` for
    Spark.
    """
    columns = columns or pinned.schema.names
    found = find_rows(pinned, settings, keys, columns=columns, within=within)
    if found is not None:
        return frame_of(pinned.spark, found, _schema_of(pinned, columns))
    rows = pinned.rows if near is None else pinned.rows.where(near)
    return of_keys(rows.select(*columns), F.broadcast(frame_of(pinned.spark, keys)))


def rows_since(
    pinned: Pinned,
    settings: Settings,
    *,
    day: tuple[str, str | None],
    time: tuple[str, str | None],
    columns: Sequence[str],
) -> DataFrame:
    """The rows from a day and a time on, given by their column and as Spark's text; no rows if these are None."""
    (of_day, first), (of_time, since), found = day, time, None
    if first is None or since is None:
        return no_rows(pinned, columns)
    with suppress(ValueError):  # Python has no dates of all years
        moment = datetime.fromisoformat(since).replace(tzinfo=UTC)
        within = {of_day: (date.fromisoformat(first), None), of_time: (moment, None)}
        found = _scan(pinned, settings, columns, pc.field(of_time) >= moment, within=within)
    if found is not None:
        return frame_of(pinned.spark, found, _schema_of(pinned, columns))
    is_since = (F.col(of_day) >= F.lit(first).cast("date")) & (F.col(of_time) >= F.lit(since).cast("timestamp"))
    return pinned.rows.where(is_since).select(*columns)


def read_small(lake: Lake, name: str, *, columns: Sequence[str] | None = None) -> DataFrame:
    """Like `pin_table`, with some columns or all, but a small table is read now and held in memory."""
    return rows_if_small(lake.table(name).pin(), lake.settings, columns=columns)


def rows_if_small(pinned: Pinned, settings: Settings, *, columns: Sequence[str] | None = None) -> DataFrame:
    """All rows of a table, held in memory if the table is small."""
    columns = columns or pinned.schema.names
    found = _scan(pinned, settings, columns, None, at_most=SMALL)
    return pinned.rows.select(*columns) if found is None else frame_of(pinned.spark, found, _schema_of(pinned, columns))


def no_rows(pinned: Pinned, columns: Sequence[str]) -> DataFrame:
    return pinned.rows.where("false").select(*columns)  # which needs no job, unlike a frame of an empty list


def _schema_of(pinned: Pinned, columns: Sequence[str]) -> StructType:
    return StructType([pinned.schema[name] for name in columns])


def frame_of(spark: SparkSession, rows: pa.Table, schema: StructType | None = None) -> DataFrame:
    """The rows as a frame, all of them: PySpark 4.2.0 drops what follows an empty chunk, and fails without a chunk."""
    rows = rows.combine_chunks() if rows.num_rows else rows.schema.empty_table()
    return spark.createDataFrame(rows, schema)


def find_rows(
    pinned: Pinned,
    settings: Settings,
    keys: pa.Table,
    *,
    columns: Sequence[str],
    within: Ranges = ANYWHERE,
    are_rare: bool = False,
) -> pa.Table | None:
    """Like `rows_of_keys`, in memory; None if Spark must look for the rows.

    It must if they are in many files, or are many themselves, if its equality is another one, as it is for floats, and
    if they can't be read here: because of years that Python does not have, or because of a fault, which Spark tells
    better.

    With `are_rare`, for keys that hardly any row has, the keys of files are kept in memory. Only files that have one
    are read as a whole.
    """
    names = keys.column_names
    if not is_exact(keys.schema, pinned.schema):
        return None
    keys = keys.group_by(names).aggregate([])
    is_one = (pc.field(name).isin(keys[name].combine_chunks()) for name in names)
    has_key: Expression = reduce(Expression.__and__, is_one) if len(keys) else pc.scalar(False)  # no file is read
    rare = keys if are_rare else None
    found = _scan(pinned, settings, columns, has_key, within={**_ends(keys), **within}, rare=rare)
    with suppress(OverflowError):
        return found if found is None or len(names) == 1 else _only(found, keys)
    return None


def is_exact(keys: pa.Schema, schema: StructType) -> bool:
    """Whether Spark takes values of these keys for equal to those of a table just if they are the same."""
    return all(_is_plain(kind := schema[key.name].dataType) and key.type == to_arrow_type(kind) for key in keys)


def _is_plain(kind: DataType) -> bool:
    return isinstance(kind, IntegralType | DateType | BooleanType) or kind == StringType()


def _ends(keys: pa.Table) -> Ranges:
    """The lowest and highest values of the columns that are integers, without NULL."""
    integers = (name for name in keys.column_names if pa.types.is_integer(keys[name].type))
    return {name: ends_of(keys[name]) for name in integers if len(keys) and not keys[name].null_count}


def ends_of(column: pa.ChunkedArray) -> tuple[Any, Any]:
    low, high = (end.as_py() for end in pc.min_max(column).values())
    return low, high


def _scan(
    pinned: Pinned,
    settings: Settings,
    columns: Sequence[str],
    condition: Expression | None,
    *,
    within: Ranges = ANYWHERE,
    at_most: int | None = None,
    rare: pa.Table | None = None,
) -> pa.Table | None:
    """The rows for which a condition holds; None if they should be left to Spark. `at_most` are the bytes to read.

    `rare` are keys that all these rows have, if hardly any row has.
    """
    if is_remote(pinned.path):
        return None
    try:
        table = stored(settings, pinned.name, pinned.version)
        files = files_within(table, within)
        if not is_as_of_spark(table):
            return None
        where = SubTreeFileSystem(pinned.path, LocalFileSystem())
        if rare is not None and (fewer := KEPT_KEYS.files_with(table, files, rare, filesystem=where)) is not None:
            files = fewer
        if bytes_of(files) > (at_most or MAX_READ):
            return None
        dataset = dataset_of(table, files, filesystem=where)
        return _few_of(dataset.scanner(columns=list(columns), filter=condition, batch_size=2**15, batch_readahead=4))
    except (DeltaError, pa.ArrowException, OSError, ValueError, OverflowError):
        return None


def files_within(table: DeltaTable, near: Ranges) -> pa.Table:
    """The `files_of` a table that may have rows with values in these ranges."""
    files = files_of(table)
    may_match = pa.array([True] * len(files), pa.bool_())
    for column, (low, high) in near.items():
        partition = f"partition.{column}"
        first, last = (partition, partition) if partition in files.column_names else (f"min.{column}", f"max.{column}")
        if isinstance(low, datetime):  # bounds of times are cut to milliseconds
            low -= timedelta(milliseconds=1)
        if {first, last} <= set(files.column_names):
            overlaps = pc.greater_equal(files[last], low)
            if high is not None:
                overlaps = pc.and_(overlaps, pc.less_equal(files[first], high))
            may_match = pc.and_(may_match, pc.fill_null(overlaps, True))
    return files.filter(may_match)


def bytes_of(files: pa.Table) -> int:
    return pc.sum(files["size_bytes"]).as_py() or 0


def _few_of(rows: Scanner) -> pa.Table | None:
    """The rows, unless they are too many."""
    found: list[pa.RecordBatch] = []
    room = MAX_FOUND
    for batch in rows.to_batches():
        found.append(batch)
        room -= batch.nbytes
        if room < 0:
            return None
    return pa.Table.from_batches(found, rows.projected_schema)


def _only(found: pa.Table, keys: pa.Table) -> pa.Table:
    """The rows that have one of the keys as a whole; each column alone has a value of one."""
    wanted = set(_tuples(keys, keys.column_names))
    return found.filter(pa.array([key in wanted for key in _tuples(found, keys.column_names)], pa.bool_()))


def _tuples(rows: pa.Table, names: Sequence[str]) -> Sequence[tuple[Any, ...]]:
    return list(zip(*(rows[name].to_pylist() for name in names), strict=True))
