"""Finds a few rows of Delta tables, by their keys or times, and reads small tables, without Spark.

However few rows there are, Spark's driver plans each scan of a table for some 0.2 seconds, and runs a job to choose its
files. delta-rs knows the files at once, and Arrow reads them. Spark reads the rows if this raises LeftToSparkError.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, date, datetime
from functools import reduce
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_type
from pyspark.sql.types import BooleanType, DataType, DateType, IntegralType, StringType, StructType

from pulsar_lakehouse import storage
from pulsar_lakehouse.arrow import Expression
from pulsar_lakehouse.limits import FOUND_BYTES, READ_BYTES, SMALL_TABLE_BYTES
from pulsar_lakehouse.spark.frames import frame_of, of_keys
from pulsar_lakehouse.tables.checksums import files_written, local_folder, verify_files
from pulsar_lakehouse.tables.declared import commit_file
from pulsar_lakehouse.tables.kept_keys import KeptKeys
from pulsar_lakehouse.tables.lake import Pinned
from pulsar_lakehouse.tables.stored import (
    ANYWHERE,
    Ranges,
    bytes_of,
    dataset_of,
    ends_of,
    files_with_null,
    files_within,
    has_known_features,
    stored_table,
)

KEPT_KEYS = KeptKeys()
CHANGE = "_change_type"


class LeftToSparkError(Exception):
    """Why rows can't be read here, or better not."""


def rows_of_keys(
    pinned: Pinned,
    keys: pa.Table,
    *,
    columns: Sequence[str] | None = None,
    within: Ranges = ANYWHERE,
    near: Column | None = None,
) -> DataFrame:
    """The rows of a table that have one of these few keys, in columns of the same names; NULL counts as a key.

    `columns`, by default all, include those of the key. Such rows are only `within` these ranges; `near` is the same
    condition for Spark.
    """
    columns = columns or pinned.schema.names
    with suppress(LeftToSparkError):
        return _framed(pinned, find_rows(pinned, keys, columns=columns, within=within), columns)
    rows = pinned.rows if near is None else pinned.rows.where(near)
    return of_keys(rows.select(*columns), F.broadcast(frame_of(pinned.spark, keys)))


def rows_since(
    pinned: Pinned, *, day: tuple[str, str | None], time: tuple[str, str | None], columns: Sequence[str]
) -> DataFrame:
    """The rows from a day and a time on, given by their column and as Spark's text; no rows if these are None."""
    (of_day, first), (of_time, since) = day, time
    if first is None or since is None:
        return no_rows(pinned, columns)
    with suppress(LeftToSparkError, ValueError):  # Python has no dates of all years
        moment = datetime.fromisoformat(since).replace(tzinfo=UTC)
        within = {of_day: (date.fromisoformat(first), None), of_time: (moment, None)}
        return _framed(pinned, _scan(pinned, columns, pc.field(of_time) >= moment, within=within), columns)
    is_since = (F.col(of_day) >= F.lit(first).cast("date")) & (F.col(of_time) >= F.lit(since).cast("timestamp"))
    return pinned.rows.where(is_since).select(*columns)


def rows_with_null(pinned: Pinned, column: str, *, columns: Sequence[str]) -> DataFrame:
    """The rows without a value in a column that hardly any row is without."""
    with suppress(LeftToSparkError):
        return _framed(pinned, _scan(pinned, columns, pc.field(column).is_null(), null=column), columns)
    return pinned.rows.where(F.col(column).isNull()).select(*columns)


def rows_if_small(pinned: Pinned, columns: Sequence[str] | None = None) -> DataFrame:
    """All rows of a table, read now and held in memory if the table is small."""
    columns = columns or pinned.schema.names
    with suppress(LeftToSparkError):
        return _framed(pinned, _scan(pinned, columns, None, at_most=SMALL_TABLE_BYTES), columns)
    return pinned.rows.select(*columns)


def no_rows(pinned: Pinned, columns: Sequence[str]) -> DataFrame:
    return pinned.rows.where("false").select(*columns)  # which needs no job, unlike a frame of an empty list


def find_changed(pinned: Pinned, key: Sequence[str], *, since: int) -> pa.Table:
    """The rows, in memory, of all keys that the change feed says were inserted or updated after a version.

    Raises LeftToSparkError if Spark must look for the rows.
    """
    if not all(_is_plain(pinned.schema[name].dataType) for name in key):
        raise LeftToSparkError("Spark compares values of these types in another way")
    columns = pa.schema([(name, to_arrow_type(pinned.schema[name].dataType)) for name in key])
    with _left_to_spark(pinned) as table:
        if since == pinned.version:
            return find_rows(pinned, columns.empty_table(), columns=pinned.schema.names)
        _verify_written(table, since + 1)
        feed = table.load_cdf(starting_version=since + 1, ending_version=pinned.version, columns=[*key, CHANGE])
        changes = pa.RecordBatchReader.from_stream(feed)
        found = _few_of(changes, changes.schema)
        is_new = pc.is_in(found[CHANGE].cast(pa.string()), pa.array(["insert", "update_postimage"]))
        keys = found.select(list(key)).cast(columns).filter(is_new)
    # Most files have none of the keys, or few: the others are those that were written since.
    return find_rows(pinned, keys, columns=pinned.schema.names, are_rare=True)


def _verify_written(table: DeltaTable, first: int) -> None:
    """Raise DamagedError if a file that the commits from this one on have written is not as it was written."""
    if (folder := local_folder(table)) is not None:
        for version in range(first, table.version() + 1):
            verify_files(folder, dict.fromkeys(files_written(folder / commit_file(version))))


def find_after(pinned: Pinned, column: str, moment: datetime) -> pa.Table:
    """The rows, in memory, that have a later time in a column. Raises LeftToSparkError if Spark must look for them."""
    within = {column: (moment, None)}
    return _scan(pinned, pinned.schema.names, pc.field(column) > moment, within=within)


def find_all_if_small(pinned: Pinned) -> pa.Table:
    """All rows, in memory. Raises LeftToSparkError unless the table is small."""
    return _scan(pinned, pinned.schema.names, None, at_most=SMALL_TABLE_BYTES)


def _framed(pinned: Pinned, found: pa.Table, columns: Sequence[str]) -> DataFrame:
    return frame_of(pinned.spark, found, StructType([pinned.schema[name] for name in columns]))


def find_rows(
    pinned: Pinned, keys: pa.Table, *, columns: Sequence[str], within: Ranges = ANYWHERE, are_rare: bool = False
) -> pa.Table:
    """Like `rows_of_keys`, in memory. Raises LeftToSparkError if Spark must look for the rows.

    `are_rare` is for keys that hardly any row has. It keeps the keys of files in memory, and reads only files that have
    one of these.
    """
    names = keys.column_names
    if not is_exact(keys.schema, pinned.schema):
        raise LeftToSparkError("Spark compares values of these types in another way")
    keys = keys.group_by(names).aggregate([])
    is_one = (pc.field(name).isin(keys[name].combine_chunks()) for name in names)
    has_key: Expression = reduce(Expression.__and__, is_one) if len(keys) else pc.scalar(False)  # no file is read
    rare = keys if are_rare else None
    found = _scan(pinned, columns, has_key, within={**_ends(keys), **within}, rare=rare)
    try:
        return found if len(names) == 1 else _only(found, keys)
    except OverflowError as error:
        raise LeftToSparkError("Python does not have these years") from error


def is_exact(keys: pa.Schema, schema: StructType) -> bool:
    """Whether values of these keys and of the table are equal in Spark only if they are the same."""
    return all(_is_plain(kind := schema[key.name].dataType) and key.type == to_arrow_type(kind) for key in keys)


def _is_plain(kind: DataType) -> bool:
    return isinstance(kind, IntegralType | DateType | BooleanType) or kind == StringType()


def _ends(keys: pa.Table) -> Ranges:
    """The lowest and highest values of the columns that are integers, without NULL."""
    integers = (name for name in keys.column_names if pa.types.is_integer(keys[name].type))
    return {name: ends_of(keys[name]) for name in integers if len(keys) and not keys[name].null_count}


def _scan(
    pinned: Pinned,
    columns: Sequence[str],
    condition: Expression | None,
    *,
    within: Ranges = ANYWHERE,
    at_most: int | None = None,
    rare: pa.Table | None = None,
    null: str | None = None,
) -> pa.Table:
    """The rows for which a condition holds. Reads `at_most` so many bytes of files, by default READ_BYTES.

    Each of these rows has one of the `rare` keys, if there are any, and NULL in the column `null`, if one is given.
    """
    with _left_to_spark(pinned) as table:
        files = files_within(table, within) if null is None else files_with_null(table, null)
        if rare is not None and (fewer := KEPT_KEYS.files_with(table, files, rare)) is not None:
            files = fewer
        if bytes_of(files) > (at_most or READ_BYTES):
            raise LeftToSparkError("the rows can be in many files")
        dataset = dataset_of(table, files)
        scan = dataset.scanner(columns=list(columns), filter=condition, batch_size=2**15, batch_readahead=4)
        return _few_of(scan.to_batches(), scan.projected_schema)


@contextmanager
def _left_to_spark(pinned: Pinned) -> Iterator[DeltaTable]:
    """The table for delta-rs. Raises LeftToSparkError if that reads it in another way, or if the block fails."""
    settings = pinned.table.lake.settings
    if storage.has_tables(settings):
        raise LeftToSparkError("the table is in an object store")
    try:
        table = stored_table(settings, pinned.table.name, pinned.version)
        if not has_known_features(table):
            raise LeftToSparkError("the table has a feature that delta-rs handles in another way")
        yield table
    except (DeltaError, pa.ArrowException, OSError, ValueError, OverflowError) as error:
        raise LeftToSparkError("a fault, which Spark tells better") from error


def _few_of(batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> pa.Table:
    """The rows. Raises LeftToSparkError if they are too many."""
    found: list[pa.RecordBatch] = []
    room = FOUND_BYTES
    for batch in batches:
        found.append(batch)
        room -= batch.nbytes
        if room < 0:
            raise LeftToSparkError("the rows are many")
    return pa.Table.from_batches(found, schema)


def _only(found: pa.Table, keys: pa.Table) -> pa.Table:
    """The rows that have one of the keys as a whole; each column alone has a value of one."""
    wanted = set(_tuples(keys, keys.column_names))
    return found.filter(pa.array([key in wanted for key in _tuples(found, keys.column_names)], pa.bool_()))


def _tuples(rows: pa.Table, names: Sequence[str]) -> Sequence[tuple[Any, ...]]:
    return list(zip(*(rows[name].to_pylist() for name in names), strict=True))
