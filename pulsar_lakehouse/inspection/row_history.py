"""The life of rows: what each commit of a table did to them, read from the table's log and files without Spark."""

import json
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from math import isnan
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import duckdb
import obstore
import pyarrow as pa

from pulsar_lakehouse.arrow import dataset
from pulsar_lakehouse.settings import Settings
from pulsar_lakehouse.storage import files_in, folder, has_tables
from pulsar_lakehouse.tables.checksums import verify_files
from pulsar_lakehouse.tables.stored import ANYWHERE, VERIFIED, Ranges, arrow_files, is_stored, stored_table

Row = dict[str, Any]

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


def changes_of_rows(
    settings: Settings,
    name: str,
    where: str,
    values: Mapping[str, object],
    *,
    identity: Callable[[Row], Hashable],
    near: Ranges = ANYWHERE,
) -> list[RowChange]:
    """The changes of the rows that match, oldest first; none if there is no such table.

    `where` is a condition in DuckDB's SQL over the columns, of which partition columns are text, and `values` are its
    parameters. All rows that match are within the ranges. Rows with the same `identity` are versions of one row.

    Maintenance removes files that left the table a week ago. The history begins with the first version of which all
    files are there.
    """
    if not is_stored(settings, name):
        return []
    path = settings.table_path(name)
    commits, present = list(_commits(settings, path)), files_in(settings, path)
    active = _files_before(settings, name, commits[0])
    # The first version that needs no file that is gone.
    begin = max((each.version for each in commits if set(each.removed) - present.keys()), default=commits[0].version)
    needed = active | {file: at for commit in commits for file, at in commit.added.items()}
    readable = {file: at for file, at in needed.items() if file in present and at.may_have(near)}
    found = _matching(settings, path, readable, where, values)
    changes: list[RowChange] = []
    for commit in commits:
        active = {file: at for file, at in active.items() if file not in commit.removed} | commit.added
        if commit.version < begin:
            continue
        is_first = commit.version == begin
        before = {} if is_first else _rows_of(commit.removed, found, identity)
        after = _rows_of(active if is_first else commit.added, found, identity)
        changes += _compare(name, commit, before, after, is_oldest=is_first and begin > 0)
    return changes


def rows_added_after(
    settings: Settings, name: str, version: int, where: str, values: Mapping[str, object]
) -> Iterator[Row]:
    """The rows that match in the files that commits after a version have added, also if they left the table since.

    `where` and `values` are as those of `changes_of_rows`. A commit that only moves rows to other files counts, too.
    """
    if not is_stored(settings, name):
        return
    path = settings.table_path(name)
    commits, present = list(_commits(settings, path)), files_in(settings, path)
    added = _files_before(settings, name, commits[0]) if commits[0].version > version + 1 else {}
    for commit in commits:
        added |= commit.added if commit.version > version else {}
    readable = {file: at for file, at in added.items() if file in present}
    for rows in _matching(settings, path, readable, where, values).values():
        yield from rows


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


def _files_before(settings: Settings, name: str, first: _Commit) -> Files:
    """The files of the first version that the log still has, without those that its commit added."""
    if first.version == 0:
        return {}
    rows = pa.table(stored_table(settings, name, first.version).get_add_actions()).to_pylist()
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


def _matching(
    settings: Settings, path: str, needed: Files, where: str, values: Mapping[str, object]
) -> dict[str, list[Row]]:
    """The rows that match, by file. Each file is read with its own columns."""
    if not has_tables(settings):
        verify_files(Path(path), dict.fromkeys(needed))
    files, found = arrow_files(settings, path), dict[str, list[Row]]()
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        for file, at in needed.items():
            in_file = dataset(file, filesystem=files, format=VERIFIED)
            connection.register("rows_of_file", in_file)
            # A MERGE also writes the partition columns to the files, where others leave them out.
            own = [f'"{name}"' for name in in_file.schema.names if name not in (*at.partition, *MARKS)]
            columns = ", ".join((*own, *(f'{_text(value)} AS "{name}"' for name, value in at.partition.items())))
            matching = f"FROM (SELECT {columns} FROM rows_of_file) WHERE {where}"
            # First, only the columns of the condition are read: few files have such a row, and they can be wide.
            if not connection.execute(f"SELECT 1 {matching} LIMIT 1", dict(values)).fetchall():
                continue
            result = connection.execute(f"SELECT * {matching}", dict(values))
            names = [column[0] for column in result.description]
            found[file] = [dict(zip(names, row, strict=True)) for row in result.fetchall()]
    return found


def _text(value: str | None) -> str:
    """A text, or NULL, in SQL."""
    return "NULL" if value is None else "'" + value.replace("'", "''") + "'"


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
