"""Tables as delta-rs, Arrow and DuckDB know them, without Spark."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from datetime import datetime, timedelta
from functools import cached_property, partial, reduce
from types import MappingProxyType
from typing import Any
from urllib.parse import unquote

import obstore
import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError, DeltaProtocolError
from deltalake.fs import DeltaStorageHandler
from pyarrow.fs import FileSystem, LocalFileSystem, PyFileSystem, SubTreeFileSystem

from pulsar_lakehouse.arrow import (
    Expression,
    FileSystemDataset,
    ParquetFileFormat,
    ParquetFragmentScanOptions,
    Scanner,
)
from pulsar_lakehouse.errors import LakehouseError
from pulsar_lakehouse.limits import VERIFIED_BYTES
from pulsar_lakehouse.settings import Settings
from pulsar_lakehouse.storage import folder, has_tables, table_options
from pulsar_lakehouse.tables.checksums import local_folder, verify
from pulsar_lakehouse.tables.masking import masked_batch, nullable

LAYERS = ("bronze", "silver", "gold", "quarantine", "quality")
FEATURES = {"appendOnly", "invariants", "checkConstraints", "changeDataFeed", "generatedColumns"}
"""The features of tables that delta-rs reads and writes as Spark does."""
MOST_ROWS = 2**30
OF_DELTA_RS = "-c000."
"""In the names of files that delta-rs writes; Spark's have a dot instead of the hyphen."""
"""More than a row group has."""

VERIFIED = ParquetFileFormat(
    default_fragment_scan_options=ParquetFragmentScanOptions(pre_buffer=True, page_checksum_verification=True)
)
"""Parquet whose pages are verified if they have checksums: Spark writes these, delta-rs does not."""

Ranges = Mapping[str, tuple[Any, Any]]
"""By column, its lowest and highest value: integers, dates, times or texts. None is an open end above."""
ANYWHERE: Ranges = MappingProxyType({})


def stored_table(settings: Settings, name: str, version: int | None = None) -> DeltaTable:
    """The table, by default its current version. Raises DeltaError if there is none."""
    return DeltaTable(settings.table_path(name), version=version, storage_options=table_options(settings))


def stored_properties(settings: Settings, name: str) -> dict[str, str]:
    """The table's properties; none if there is no table, or if its creation was cut off."""
    try:
        return stored_table(settings, name).metadata().configuration
    except DeltaError:
        return {}


def arrow_files(settings: Settings, path: str) -> FileSystem:
    """A table's folder, as Arrow reads it."""
    if not has_tables(settings):
        return SubTreeFileSystem(path, LocalFileSystem())
    return PyFileSystem(DeltaStorageHandler(path, table_options(settings)))


def is_stored(settings: Settings, name: str) -> bool:
    return DeltaTable.is_deltatable(settings.table_path(name), table_options(settings))


def table_names(settings: Settings, are_wanted: Callable[[str], bool] = bool) -> Iterator[str]:
    """The names `layer.table` of all tables, or of those whose names are wanted."""
    for layer in LAYERS:
        folders = obstore.list_with_delimiter(folder(settings, settings.table_path(layer)))["common_prefixes"]
        for name in sorted(f"{layer}.{path}" for path in folders):
            if are_wanted(name) and is_stored(settings, name):
                yield name


def existing_tables(settings: Settings, names: Iterable[str] | None = None) -> Iterator[tuple[str, DeltaTable]]:
    """All tables, or these, with their names. Raises LakehouseError, which names the table, if one can't be read."""
    for name in table_names(settings) if names is None else names:
        try:
            table = stored_table(settings, name)
        except (DeltaError, DeltaProtocolError) as error:
            raise LakehouseError(f"{name}: {error}") from error
        yield name, table


def columns_of(table: DeltaTable) -> pa.Schema:
    return pa.schema(table.schema().to_arrow())


def has_known_features(table: DeltaTable) -> bool:
    """Whether deltalake reads and writes a table as Spark does."""
    is_mapped = table.metadata().configuration.get("delta.columnMapping.mode", "none") != "none"
    return not is_mapped and not set(table.protocol().writer_features or ()) - FEATURES


class Unsliced(FileSystemDataset):  # type: ignore[misc]  # pyarrow has no types
    """A dataset whose batches are row groups. Of slices of them, DuckDB refuses those with a struct in a struct."""

    verify: Callable[[], None] | None = None
    masked: Collection[str] = ()
    """The columns that are masked in all that it gives: also a condition sees only the mask."""

    def scanner(self, **options: Any) -> Scanner:
        if self.verify is not None:
            self.verify()
        given = {"batch_size": MOST_ROWS, "batch_readahead": 1} | options
        condition = given.get("filter")
        if not self.masked and (condition is None or not self._has_views):
            return super().scanner(**given)
        # Arrow can't compare such texts with the bounds of row groups: it must not see the condition before it reads.
        read = super().scanner(**given | {"filter": None})
        with suppress(pa.ArrowInvalid):  # if the condition is over other columns, too
            return self._scanner_of(read, filter=condition)
        read = super().scanner(**given | {"filter": None, "columns": None})
        return self._scanner_of(read, columns=given["columns"], filter=condition)

    def _scanner_of(self, read: Scanner, **options: Any) -> Scanner:
        if not self.masked:
            return Scanner.from_batches(read.to_batches(), schema=read.projected_schema, **options)
        batches = (masked_batch(rows, self.masked) for rows in read.to_batches())
        return Scanner.from_batches(batches, schema=nullable(read.projected_schema), **options)

    @cached_property
    def _has_views(self) -> bool:
        """Whether texts are `string_view` in one of the files, as in those that a merge of delta-rs has written."""
        merged = (each for each in self.get_fragments() if OF_DELTA_RS in each.path)
        return any("string_view" in str(field.type) for each in merged for field in each.physical_schema)


def files_of(table: DeltaTable) -> pa.Table:
    """The files of a table: `path`, `size_bytes`, values of partition columns, and bounds of others."""
    return pa.table(table.get_add_actions(flatten=True))


def dataset_of(table: DeltaTable, files: pa.Table | None = None, *, masked: Collection[str] = ()) -> FileSystemDataset:
    """A table for Arrow and DuckDB, or some of its files. Reading it raises DamagedError if one is damaged.

    The columns that are `masked`, and fields of structs such as `user.email`, are so in all that is read of it.

    deltalake itself also tells them the bounds of columns. Where a file has none for a column, as Spark writes none for
    booleans, it says NULL, by which they would skip the file. And it fails for dates that Python does not have.
    """
    files = files_of(table) if files is None else files
    # One in Python can hang: who drops a scan waits for threads that still want to read.
    where = SubTreeFileSystem(str(held), LocalFileSystem()) if (held := local_folder(table)) is not None else None
    empty = table.to_pyarrow_dataset(file_pruning_predicate="false", filesystem=where)
    partitions = [(name, f"partition.{name}") for name in table.metadata().partition_columns]
    fragments = [
        VERIFIED.make_fragment(
            unquote(path.as_py()),  # a log has paths as URIs
            empty.filesystem,
            reduce(Expression.__and__, (_is(name, batch[held][row]) for name, held in partitions), pc.scalar(True)),
        )
        for batch in files.to_batches()
        for row, path in enumerate(batch["path"])
    ]
    made = Unsliced(fragments, empty.schema, VERIFIED, empty.filesystem)
    made.verify = partial(verify, table, files) if bytes_of(files) <= VERIFIED_BYTES else None
    made.masked = masked
    return made


def _is(column: str, value: pa.Scalar) -> Expression:
    return pc.field(column) == value if value.is_valid else pc.field(column).is_null()


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


def files_with_null(table: DeltaTable, column: str) -> pa.Table:
    """The `files_of` a table that may have rows without a value in a column."""
    files, nulls = files_of(table), f"null_count.{column}"
    if nulls not in files.column_names:
        return files
    return files.filter(pc.fill_null(pc.greater(files[nulls], 0), True))


def bytes_of(files: pa.Table) -> int:
    return pc.sum(files["size_bytes"]).as_py() or 0


def ends_of(column: pa.ChunkedArray) -> tuple[Any, Any]:
    low, high = (end.as_py() for end in pc.min_max(column).values())
    return low, high
