"""The life of rows: what each commit of a table did to them, read from the table's log and files without Spark."""

import json
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from math import isnan
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import duckdb
import obstore
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow.fs import FileSystem

from pulsar_lakehouse.arrow import Fragment
from pulsar_lakehouse.settings import Settings
from pulsar_lakehouse.storage import files_in, folder, has_tables
from pulsar_lakehouse.tables.checksums import verify_files
from pulsar_lakehouse.tables.stored import (
    ANYWHERE,
    VERIFIED,
    Ranges,
    Unsliced,
    arrow_files,
    is_stored,
    stored_table,
)

Row = dict[str, Any]

FILE = "_file_of_row"
MARKS = "_change_type", "__is_cdc"
"""Columns that a MERGE adds to the files of a table with a change feed. They are not of the table."""


@dataclass(frozen=True, kw_only=True)
class RowChange:
    """What a commit did to a row: `before` is None if it added the row, and `after` is None if it removed it."""

    table: str
    version: int
    at: datetime
    before: Row | None
    after: Row | None
    reason: str = ""
    """Why the commit was made: its user metadata."""
    is_oldest: bool = False
    """Whether the row was there before: the log, or the files that are kept, begin with this version."""


@dataclass(frozen=True)
class _File:
    partition: Mapping[str, str | None]
    """The values of the partition columns."""
    low: Row
    """The bounds that the log has of other columns, with those of structs in structs."""
    high: Row

    def may_have(self, near: Ranges) -> bool:
        return not any(self._is_off(column.split("."), *ends) for column, ends in near.items())

    def _is_off(self, column: Sequence[str], first: Any, last: Any) -> bool:
        low, high = _field(self.low, column), _field(self.high, column)
        # Others than integers and texts are not in the log as they are in a table.
        is_comparable = type(low) is type(high) is type(first) and isinstance(first, int | str)
        return is_comparable and (high < first or (last is not None and last < low))


def _field(bounds: Any, path: Sequence[str]) -> Any:
    for name in path:
        bounds = bounds.get(name) if isinstance(bounds, dict) else None
    return bounds


@dataclass(frozen=True, kw_only=True)
class _Commit:
    version: int
    at: datetime
    added: "Files"
    removed: tuple[str, ...]
    reason: str


Files = dict[str, _File]
"""By the paths of files within their table."""


class History:
    """What the log of a table still has of its commits; nothing if there is no such table.

    A condition `where` is in DuckDB's SQL over the columns, of which partition columns are text, and `values` are its
    parameters. Maintenance removes files that left the table a week ago.
    """

    def __init__(self, settings: Settings, name: str) -> None:
        self._settings, self._name, self._path = settings, name, settings.table_path(name)
        self._commits = list(_commits(settings, self._path)) if is_stored(settings, name) else []
        self._present = files_in(settings, self._path) if self._commits else {}

    def changes(
        self,
        where: str,
        values: Mapping[str, object],
        *,
        identity: Callable[[Row], Hashable],
        near: Ranges = ANYWHERE,
    ) -> list[RowChange]:
        """The changes of the rows that match, oldest first. All of these are within the ranges.

        Rows with the same `identity` are versions of one row. The changes begin with the first version of which all
        files are there.
        """
        if not (commits := self._commits):
            return []
        active = self._files_before()
        # The first version that needs no file that is gone.
        is_cut = (each.version for each in commits if set(each.removed) - self._present.keys())
        begin = max(is_cut, default=commits[0].version)
        needed = active | {file: at for commit in commits for file, at in commit.added.items()}
        found = self._matching({file: at for file, at in needed.items() if at.may_have(near)}, where, values)
        changes: list[RowChange] = []
        for commit in commits:
            active = {file: at for file, at in active.items() if file not in commit.removed} | commit.added
            if commit.version < begin:
                continue
            is_first = commit.version == begin
            before = {} if is_first else _rows_of(commit.removed, found, identity)
            after = _rows_of(active if is_first else commit.added, found, identity)
            changes += _compare(self._name, commit, before, after, is_oldest=is_first and begin > 0)
        return changes

    def rows_added_after(self, version: int, where: str, values: Mapping[str, object]) -> Iterator[Row]:
        """The rows that match in the files that later commits have added, also if they left the table since.

        A commit that only moves rows to other files counts, too.
        """
        if not self._commits:
            return
        added = self._files_before() if self._commits[0].version > version + 1 else {}
        for commit in self._commits:
            added |= commit.added if commit.version > version else {}
        for rows in self._matching(added, where, values).values():
            yield from rows

    def _files_before(self) -> Files:
        """The files of the first version that the log still has, without those that its commit added."""
        first = self._commits[0]
        if first.version == 0:
            return {}
        rows = pa.table(stored_table(self._settings, self._name, first.version).get_add_actions()).to_pylist()
        files = {unquote(row["path"]): row for row in rows}
        return {
            file: _File(
                {name: None if value is None else str(value) for name, value in (row.get("partition") or {}).items()},
                row.get("min") or {},
                row.get("max") or {},
            )
            for file, row in files.items()
            if file not in first.added
        }

    def _matching(self, needed: Files, where: str, values: Mapping[str, object]) -> dict[str, list[Row]]:
        """The rows that match, by file, of the files that are there. Those with the same columns are read together."""
        needed = {file: at for file, at in needed.items() if file in self._present}
        if not has_tables(self._settings):
            verify_files(Path(self._path), dict.fromkeys(needed))
        files, alike = arrow_files(self._settings, self._path), dict[pa.Schema, dict[str, Fragment]]()
        for file in needed:
            fragment = VERIFIED.make_fragment(file, files, pc.field(FILE) == file)
            alike.setdefault(fragment.physical_schema.remove_metadata(), {})[file] = fragment
        found: dict[str, list[Row]] = {}
        for schema, fragments in alike.items():
            with _database().cursor() as connection:
                connection.execute("SET TimeZone = 'UTC'")
                sql = _registered(connection, {file: needed[file].partition for file in fragments}, schema)
                # First, only the columns of the condition are read: few files have such a row, and they can be wide.
                connection.register("held", _dataset(fragments.values(), schema, files))
                having = connection.execute(f"SELECT DISTINCT {FILE} FROM ({sql}) WHERE {where}", dict(values))
                some = [fragments[file] for (file,) in having.fetchall()]
                connection.register("held", _dataset(some, schema, files))
                result = connection.execute(f"SELECT * FROM ({sql}) WHERE {where}", dict(values))
                names = [column[0] for column in result.description]
                for each in result.fetchall():
                    row = dict(zip(names, each, strict=True))
                    found.setdefault(row.pop(FILE), []).append(row)
        return found


@cache
def _database() -> duckdb.DuckDBPyConnection:
    """For all that this process reads, as to make one takes 20 ms. Each cursor has tables of its own."""
    return duckdb.connect()


def _registered(
    connection: duckdb.DuckDBPyConnection, partitions: Mapping[str, Mapping[str, str | None]], schema: pa.Schema
) -> str:
    """SQL for the rows of `held`, with the values of the partition columns of their file, and `FILE`."""
    names = sorted({name for each in partitions.values() for name in each})
    told = {FILE: [*partitions], **{name: [each.get(name) for each in partitions.values()] for name in names}}
    connection.register("told", pa.table(told, schema=pa.schema([(name, pa.string()) for name in told])))
    # A MERGE also writes the partition columns to the files, where others leave them out.
    own = [f'held."{name}"' for name in schema.names if name not in (*names, *MARKS)]
    columns = ", ".join((*own, *(f'told."{name}"' for name in told)))
    return f"SELECT {columns} FROM held JOIN told USING ({FILE})"


def _dataset(fragments: Iterable[Fragment], schema: pa.Schema, where: FileSystem) -> Unsliced:
    return Unsliced(list(fragments), schema.append(pa.field(FILE, pa.string())), VERIFIED, where)


def _commits(settings: Settings, path: str) -> Iterator[_Commit]:
    """The commits that the log still has, oldest first."""
    log = folder(settings, f"{path}/_delta_log")
    listed = {file["path"]: file["last_modified"] for file in obstore.list_with_delimiter(log)["objects"]}
    for name in sorted(listed):
        version, _, kind = name.partition(".")
        if version.isdigit() and kind == "json":
            yield _commit(int(version), bytes(obstore.get(log, name).bytes()).decode(), listed[name])


def _commit(version: int, actions: str, written: datetime) -> _Commit:
    lines = [json.loads(line) for line in actions.splitlines() if line]
    told: dict[str, Any] = next((line["commitInfo"] for line in lines if "commitInfo" in line), {})
    return _Commit(
        version=version,
        at=datetime.fromtimestamp(told["timestamp"] / 1000, UTC) if told else written,
        added={unquote(line["add"]["path"]): _added(line["add"]) for line in lines if "add" in line},
        removed=tuple(unquote(line["remove"]["path"]) for line in lines if "remove" in line),
        reason=told.get("userMetadata") or "",
    )


def _added(action: Mapping[str, Any]) -> _File:
    bounds = json.loads(action.get("stats") or "{}")
    return _File(action["partitionValues"], bounds.get("minValues") or {}, bounds.get("maxValues") or {})


def _rows_of(
    files: Iterable[str], found: Mapping[str, list[Row]], identity: Callable[[Row], Hashable]
) -> dict[Hashable, Row]:
    return {identity(row): row for file in files for row in found.get(file, ())}


def _compare(
    name: str, commit: _Commit, before: Mapping[Hashable, Row], after: Mapping[Hashable, Row], *, is_oldest: bool
) -> Iterable[RowChange]:
    for row in dict.fromkeys((*before, *after)):
        was, becomes = before.get(row), after.get(row)
        if _values(was) != _values(becomes):  # a commit can also move a row to another file
            yield RowChange(
                table=name,
                version=commit.version,
                at=commit.at,
                before=was,
                after=becomes,
                reason=commit.reason,
                is_oldest=is_oldest,
            )


def _values(value: Any) -> Any:
    """A value to compare. A column that an older file lacks counts as NULL. NaN equals NaN."""
    match value:
        case dict():
            return {name: _values(field) for name, field in value.items() if field is not None}
        case list():
            return [_values(each) for each in value]
        case float() if isnan(value):
            return "NaN"
    return value
