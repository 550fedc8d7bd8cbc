"""Reads a source: all of its rows as they are at one time, as tables of Arrow.

A source that can't be read, or whose columns are not those that are declared, raises SourceError, which says so in one
line. Nothing has landed then.
"""

import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from fnmatch import fnmatch
from pathlib import PurePosixPath

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable as StoredTable
from deltalake.exceptions import DeltaError, DeltaProtocolError, TableNotFoundError
from deltalake.fs import DeltaStorageHandler
from deltalake.table import SUPPORTED_READER_FEATURES
from obstore.exceptions import BaseError
from pyarrow import csv
from pyarrow.fs import FileInfo, FileSelector, FileSystem, FileType, LocalFileSystem, PyFileSystem, SubTreeFileSystem
from pyspark.sql import types as T

from pulsar_lakehouse.arrow import FileSystemDataset
from pulsar_lakehouse.contracts.sources import DeltaTable, Files, Postgres, Source
from pulsar_lakehouse.contracts.types import type_name
from pulsar_lakehouse.errors import LakehouseError, SourceError
from pulsar_lakehouse.limits import MIB
from pulsar_lakehouse.settings import Settings, is_remote
from pulsar_lakehouse.storage import source_path, store_options
from pulsar_lakehouse.tables.stored import columns_of, dataset_of

CSV = ".csv"
BLOCK = 8 * MIB
"""Bytes of a file that are parsed at once."""
WHOLE = ("smallint", "integer", "bigint")
FITTING: Mapping[type[T.DataType], tuple[str, ...]] = {
    T.BooleanType: ("boolean",),
    T.IntegerType: WHOLE,
    T.LongType: WHOLE,
    T.DoubleType: ("real", "double precision", "numeric", *WHOLE),
    T.DecimalType: ("numeric", *WHOLE),
    T.DateType: ("date",),
    T.TimestampType: ("timestamp with time zone", "timestamp without time zone"),
    T.BinaryType: ("bytea",),
}
"""The types in Postgres that are read as a declared one. A text is whatever is none of these, such as a uuid."""
OF_OTHERS = {kind for kinds in FITTING.values() for kind in kinds}


def parts_of(settings: Settings, source: Source) -> Iterator[pa.Table | FileSystemDataset]:
    """All rows of the source, part by part. `has_texts` says whether all of their columns are texts."""
    with told(source):
        match source:
            case Postgres():
                from pulsar_lakehouse.bronze.source_postgres import open_postgres, rows_of  # takes 0.2 s

                with open_postgres(settings, source) as (cursor, kinds):
                    _refuse_other_columns(source, kinds)
                    yield from rows_of(cursor, source)
            case Files():
                yield from _of_files(settings, source)
            case DeltaTable():
                table = _delta(settings, source)
                _refuse_other_columns(source, _kinds(columns_of(table)))
                yield dataset_of(table)


def has_texts(source: Source) -> bool:
    return isinstance(source, Postgres) or (isinstance(source, Files) and source.path.endswith(CSV))


def state_of(settings: Settings, source: Source) -> str:
    """What changes when a source has changed, as far as that can be known without reading it; empty for Postgres."""
    with told(source):
        match source:
            case Files():
                return hashlib.sha256(_as_read(_files(settings, source)[1]).encode()).hexdigest()
            case DeltaTable():
                table = _delta(settings, source)
                return f"{table.metadata().id} {table.version()}"
    return ""


def why_unread(settings: Settings, source: Source) -> str:
    """Why the source can't be read, if it is away or has other columns. Empty if it can. No row is read."""
    try:
        _look_at_columns(settings, source)
    except SourceError as error:
        return str(error)
    return ""


def _look_at_columns(settings: Settings, source: Source) -> None:
    with told(source):
        match source:
            case Postgres():
                from pulsar_lakehouse.bronze.source_postgres import open_postgres  # takes 0.2 s

                with open_postgres(settings, source) as (_, kinds):
                    _refuse_other_columns(source, kinds)
            case Files():
                files, found = _files(settings, source)
                _refuse_other_columns(source, _columns_of_file(files, found[0].path))
            case DeltaTable():
                _refuse_other_columns(source, _kinds(columns_of(_delta(settings, source))))


@contextmanager
def told(source: Source) -> Iterator[None]:
    """Raises what the block raises as a SourceError of one line."""
    try:
        yield
    except LakehouseError as error:
        raise SourceError(str(error)) from error
    except (OSError, DeltaError, DeltaProtocolError, BaseError, duckdb.Error, pa.ArrowException) as error:
        raise SourceError(f"{source.place}: {str(error).strip().partition(chr(10))[0]}") from error


def _refuse_other_columns(source: Source, kinds: Mapping[str, str | None]) -> None:
    """Raises SourceError for a column that the source lacks, or has with another type; None is one that fits all."""
    for field in source.columns:
        if field.name not in kinds:
            has = ", ".join(kinds) or "none"
            raise SourceError(f"{source.place} has no column {field.name}: it has {has}")
        kind, declared = kinds[field.name], type_name(field.dataType)
        if kind is not None and not _fits(field.dataType, kind):
            raise SourceError(f"{source.place}: {field.name} is {kind} there, and declared as {declared}")


def _fits(declared: T.DataType, kind: str) -> bool:
    if isinstance(declared, T.StructType | T.ArrayType | T.MapType):
        return kind in ("json", "jsonb", "nested")
    if type(declared) in FITTING:
        return kind in FITTING[type(declared)]
    if isinstance(declared, T.TimestampType):  # as a whole number
        return kind in WHOLE
    return kind not in OF_OTHERS and kind != "nested"


def _of_files(settings: Settings, source: Files) -> Iterator[pa.Table]:
    files, found = _files(settings, source)
    for each in found:
        _refuse_other_columns(source, _columns_of_file(files, each.path))
    for each in found:
        with files.open_input_file(each.path) as opened:
            try:
                if each.path.endswith(CSV):
                    yield from _of_csv(opened, each, source)
                else:
                    parts = pq.ParquetFile(opened).iter_batches(columns=source.columns.names)
                    yield from (pa.Table.from_batches([part]) for part in parts)
            except pa.ArrowException as error:
                raise SourceError(f"{each.path}: {_without_row(error)}") from error
    if _as_read(_files(settings, source)[1]) != _as_read(found):
        raise SourceError(f"{source.place}: files have changed while they were read: the next run reads them")


def _without_row(error: pa.ArrowException) -> str:
    """What is wrong with a file. Of a CSV file, Arrow quotes the row, which may be about a person."""
    return re.sub(r"(got \d+): .*", r"\1", str(error).partition("\n")[0])


def _as_read(files: Iterable[FileInfo]) -> str:
    """What changes when one of the files does."""
    return "\n".join(f"{each.path} {each.size} {each.mtime_ns}" for each in files)


def _of_csv(opened: pa.NativeFile, file: FileInfo, source: Files) -> Iterator[pa.Table]:
    if within := _ends_within(opened):
        raise SourceError(f"{file.path}: ends within a {within}: half of it may be missing")
    opened.seek(0)
    names = source.columns.names
    rows = csv.open_csv(
        opened,
        read_options=csv.ReadOptions(block_size=BLOCK),
        parse_options=csv.ParseOptions(newlines_in_values=True, ignore_empty_lines=False),
        convert_options=csv.ConvertOptions(
            column_types=dict.fromkeys(names, pa.string()),
            include_columns=names,
            **{"strings_can_be_null": True, "quoted_strings_can_be_null": False, "null_values": [""]},
        ),
    )
    for batch in rows:
        yield pa.Table.from_batches([batch])


def _ends_within(opened: pa.NativeFile) -> str:
    """What a CSV file ends within, as if it was cut there; empty if it is whole."""
    quotes, last = 0, b""
    while block := opened.read(BLOCK):
        quotes, last = quotes + block.count(b'"'), block
    if quotes % 2:
        return "quoted text"
    return "" if last.endswith(b"\n") else "line, without a line break"


def _files(settings: Settings, source: Files) -> tuple[FileSystem, list[FileInfo]]:
    """The files that match the path, by their names. Raises SourceError if there is none."""
    parts = PurePosixPath(source_path(settings, source.path).replace("://", ":/")).parts
    fixed = next((place for place, part in enumerate(parts) if "*" in part), len(parts) - 1)
    root, pattern = "/".join(parts[:fixed]).replace("//", "/").replace(":/", "://"), parts[fixed:]
    if is_remote(root):
        files: FileSystem = PyFileSystem(DeltaStorageHandler(root, store_options(settings, root)))
    else:
        files = SubTreeFileSystem(root, LocalFileSystem())
    listed = files.get_file_info(FileSelector("", allow_not_found=True, recursive=len(pattern) > 1))
    found = [each for each in listed if each.type == FileType.File and _matches(each.path, pattern)]
    if not found:
        raise SourceError(f"{source.place}: there is no such file in {root}")
    return files, sorted(found, key=lambda each: each.path)


def _matches(path: str, pattern: tuple[str, ...]) -> bool:
    parts = PurePosixPath(path).parts
    return len(parts) == len(pattern) and all(map(fnmatch, parts, pattern))


def _columns_of_file(files: FileSystem, path: str) -> dict[str, str | None]:
    with files.open_input_file(path) as opened:
        try:
            if not path.endswith(CSV):
                return _kinds(pq.read_schema(opened))
            header = opened.read(BLOCK).partition(b"\n")[0] + b"\n"
            return dict.fromkeys(csv.read_csv(pa.BufferReader(header)).column_names) if header.strip() else {}
        except pa.ArrowException as error:
            raise SourceError(f"{path}: {str(error).partition(chr(10))[0]}") from error


def _delta(settings: Settings, source: DeltaTable) -> StoredTable:
    path = source_path(settings, source.path)
    try:
        table = StoredTable(path, storage_options=store_options(settings, path))
    except TableNotFoundError as error:
        raise SourceError(f"{source.place}: there is no Delta table in {path}") from error
    features = {*(table.protocol().reader_features or ())} - SUPPORTED_READER_FEATURES
    if table.metadata().configuration.get("delta.columnMapping.mode", "none") != "none":
        features.add("columnMapping")
    if features:
        raise SourceError(f"{source.place}: has features that can't be read: {', '.join(sorted(features))}")
    return table


def _kinds(columns: pa.Schema) -> dict[str, str | None]:
    return {each.name: _kind(each.type) for each in columns}


def _kind(kind: pa.DataType) -> str:
    """An Arrow type as Postgres names it, for `FITTING`."""
    if pa.types.is_dictionary(kind):
        return _kind(kind.value_type)
    known = {
        "boolean": pa.types.is_boolean,
        "bigint": pa.types.is_integer,
        "double precision": pa.types.is_floating,
        "numeric": pa.types.is_decimal,
        "date": pa.types.is_date,
        "timestamp with time zone": pa.types.is_timestamp,
        "nested": pa.types.is_nested,
    }
    if named := next((name for name, is_one in known.items() if is_one(kind)), ""):
        return named
    return "bytea" if "binary" in str(kind) else str(kind)
