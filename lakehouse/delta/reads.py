"""Finds the rows of a Delta table that have one of a few keys, without Spark.

However few rows there are, Spark's driver plans each scan of a table for some 0.2 seconds, and runs a job to choose its
files. deltalake knows the files at once, and Arrow reads them.
"""

from collections.abc import Mapping, Sequence
from datetime import date
from functools import reduce
from types import MappingProxyType
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError
from pyarrow.dataset import Expression, Scanner
from pyarrow.fs import LocalFileSystem, SubTreeFileSystem
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from lakehouse.delta.datasets import dataset_of
from lakehouse.delta.tables import Pinned, of_keys
from lakehouse.settings import Settings, is_remote
from lakehouse.storage import table_options

MAX_READ = 256 * 2**20
"""Bytes of the files in which keys are looked for here. To plan is the smaller part of what Spark needs for more."""
MAX_FOUND = 16 * 2**20
"""Bytes of rows that are brought to Spark: all of them pass through its driver."""
FEATURES = {"appendOnly", "invariants", "checkConstraints", "changeDataFeed", "generatedColumns"}
"""The features of tables that deltalake reads and writes as Spark does."""

Ranges = Mapping[str, tuple[Any, Any]]
"""By column, its lowest and highest value: integers, dates or texts."""
ANYWHERE: Ranges = MappingProxyType({})


def stored(settings: Settings, name: str, version: int | None = None) -> DeltaTable:
    """Like `stored_table`, whose module loads DuckDB."""
    return DeltaTable(settings.table_path(name), version=version, storage_options=table_options(settings))


def is_as_of_spark(table: DeltaTable) -> bool:
    """Whether deltalake reads and writes a table as Spark does."""
    return not set(table.protocol().writer_features or ()) - FEATURES


def columns_of(table: DeltaTable) -> pa.Schema:
    return pa.schema(table.schema().to_arrow())


def rows_of_keys(pinned: Pinned, settings: Settings, keys: pa.Table) -> DataFrame:
    """The rows of a table that have one of these few keys, in columns of the same names; NULL counts as a key."""
    spark, found = pinned.rows.sparkSession, find_rows(pinned, settings, keys)
    if found is None:
        return of_keys(pinned.rows, F.broadcast(frame_of(spark, keys)))
    return frame_of(spark, found, pinned.rows.schema)


def frame_of(spark: SparkSession, rows: pa.Table, schema: StructType | None = None) -> DataFrame:
    """The rows as a frame, all of them: PySpark 4.2.0 drops what follows an empty chunk, and fails without a chunk."""
    rows = rows.combine_chunks() if rows.num_rows else rows.schema.empty_table()
    return spark.createDataFrame(rows, schema)


def find_rows(
    pinned: Pinned,
    settings: Settings,
    keys: pa.Table,
    *,
    columns: Sequence[str] | None = None,
    within: Ranges = ANYWHERE,
) -> pa.Table | None:
    """The rows of a table that have one of these few keys, in memory; None if Spark must look for them.

    `columns`, by default all, have those of the key. `within` says where such rows can be. Spark must look for them if
    they are in many files, or are many themselves, if its equality is another one, as it is for floats, and if they
    can't be read, because it says better why.
    """
    if is_remote(settings.warehouse_root):
        return None
    try:
        table = stored(settings, pinned.name, pinned.version)
        kinds = columns_of(table)
        if not is_as_of_spark(table) or not all(_is_exact(each, kinds) for each in keys.schema):
            return None
        return _find(table, settings.table_path(pinned.name), keys, columns or kinds.names, within)
    except (DeltaError, pa.ArrowException, OSError):
        return None


def _find(table: DeltaTable, path: str, keys: pa.Table, columns: Sequence[str], within: Ranges) -> pa.Table | None:
    kinds, names = columns_of(table), keys.column_names
    keys = keys.group_by(names).aggregate([])
    near = {**_ends(keys), **within}
    if bytes_within(table, near) > MAX_READ:
        return None
    where = " AND ".join(between(f"`{name}`", kinds.field(name).type, *ends) for name, ends in near.items())
    files = SubTreeFileSystem(path, LocalFileSystem())
    dataset = dataset_of(table, filesystem=files, file_pruning_predicate=where or None)
    is_one = (pc.field(name).isin(keys[name].combine_chunks()) for name in names)
    has_key: Expression = reduce(Expression.__and__, is_one)
    found = _few_of(dataset.scanner(columns=list(columns), filter=has_key, batch_size=2**15, batch_readahead=4))
    return found if found is None or len(names) == 1 else _only(found, keys)


def _is_exact(key: pa.Field, kinds: pa.Schema) -> bool:
    """Whether values of a key are equal to those of the table, for Spark, just if they are the same."""
    types, kind = pa.types, key.type
    is_plain = types.is_integer(kind) or types.is_string(kind) or types.is_date(kind) or types.is_boolean(kind)
    return bool(is_plain and kind == kinds.field(key.name).type)


def _ends(keys: pa.Table) -> Ranges:
    """The lowest and highest values of the columns that are integers, without NULL."""
    integers = (name for name in keys.column_names if pa.types.is_integer(keys[name].type))
    return {name: ends_of(keys[name]) for name in integers if len(keys) and not keys[name].null_count}


def ends_of(column: pa.ChunkedArray) -> tuple[Any, Any]:
    low, high = (end.as_py() for end in pc.min_max(column).values())
    return low, high


def bytes_within(table: DeltaTable, near: Ranges) -> int:
    """The bytes of the files that may have rows with values in these ranges."""
    files = pa.table(table.get_add_actions(flatten=True))
    may_match = pa.array([True] * len(files))
    for column, (low, high) in near.items():
        partition = f"partition.{column}"
        first, last = (partition, partition) if partition in files.column_names else (f"min.{column}", f"max.{column}")
        if {first, last} <= set(files.column_names):
            overlaps = pc.and_(pc.less_equal(files[first], high), pc.greater_equal(files[last], low))
            may_match = pc.and_(may_match, pc.fill_null(overlaps, True))
    return pc.sum(files["size_bytes"].filter(may_match)).as_py() or 0


def between(column: str, kind: pa.DataType, low: Any, high: Any) -> str:
    """SQL of deltalake. Integers are kept to those that the column can have, which are the ones it can compare with."""
    if isinstance(low, int):
        most = 2 ** (kind.bit_width - 1) - 1
        low, high = max(low, -most - 1), min(high, most)
    elif isinstance(low, date):
        low, high = (f"DATE '{end}'" for end in (low, high))
    else:
        low, high = ("'{}'".format(end.replace("'", "''")) for end in (low, high))
    return f"{column} BETWEEN {low} AND {high}"


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
