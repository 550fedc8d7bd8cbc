"""Whether the files of a table are what its log says, and whether the log agrees with itself. Needs no Spark."""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from hashlib import sha256
from itertools import chain
from typing import Any
from urllib.parse import unquote

import obstore
import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError
from obstore.exceptions import BaseError
from pyarrow.fs import FileSystem

from pulsar_lakehouse.errors import LakehouseError
from pulsar_lakehouse.settings import Settings
from pulsar_lakehouse.storage import folder, has_tables
from pulsar_lakehouse.tables.checksums import is_as_written, local_folder
from pulsar_lakehouse.tables.declared import commit_file
from pulsar_lakehouse.tables.stored import arrow_files, files_of, stored_table

AT_ONCE = 4
"""Files that are read at the same time."""
NOT_AS_WRITTEN = "is not as it was written"
READ_ROWS = 2**14
FAULTS = (DeltaError, LakehouseError, pa.ArrowException, BaseError, OSError, ValueError)


@dataclass(frozen=True, kw_only=True)
class Fault:
    table: str
    file: str
    """Its path within the table."""
    what: str


@dataclass(kw_only=True)
class Checked:
    table: str
    files: int = 0
    bytes: int = 0
    unsummed: int = 0
    """Files without checksums, or in an object store. They were read as a whole, and their pages may have some."""
    faults: list[Fault] = field(default_factory=list)


def check_table(settings: Settings, name: str, *, progress: Callable[[int], None] = lambda _: None) -> Checked:
    """Compare each file of a table with the log. `progress` is told the bytes of each file that is done."""
    checked = Checked(table=name)
    of_log = [Fault(table=name, file=file, what=what) for file, what in _log_faults(settings, name)]
    checked.faults += of_log
    try:
        table = stored_table(settings, name)
        rows = files_of(table).to_pylist()
    except FAULTS as error:
        first = str(error).partition("\n")[0]
        checked.faults += [] if of_log else [Fault(table=name, file="_delta_log", what=f"can't be read: {first}")]
        return checked
    check = partial(_data_faults, table, arrow_files(settings, settings.table_path(name)), _sizes(settings, name))
    with ThreadPoolExecutor(AT_ONCE) as threads:
        for row, (faults, is_summed) in zip(rows, threads.map(check, rows), strict=True):
            checked.files += 1
            checked.bytes += row["size_bytes"]
            checked.unsummed += not is_summed
            checked.faults += [Fault(table=name, file=unquote(row["path"]), what=what) for what in faults]
            progress(row["size_bytes"])
    return checked


def _sizes(settings: Settings, name: str) -> dict[str, int]:
    listed = obstore.list(folder(settings, settings.table_path(name)))
    return {file["path"]: file["size"] for batch in listed for file in batch}


def _data_faults(
    table: DeltaTable, files: FileSystem, sizes: Mapping[str, int], row: Mapping[str, Any]
) -> tuple[list[str], bool]:
    """What is wrong with a file, and whether it has checksums as a whole, which are right."""
    path = unquote(row["path"])
    if (size := sizes.get(path)) is None:
        return ["is missing"], False
    if size != row["size_bytes"]:
        return [f"has {size:,} bytes, and {row['size_bytes']:,} in the log"], False
    where = local_folder(table)
    as_written = is_as_written(f"{where}/{path}") if where else None
    if as_written is False:
        return [NOT_AS_WRITTEN], True
    try:
        with files.open_input_file(path) as opened:
            parquet = pq.ParquetFile(opened, page_checksum_verification=True)
            if not as_written:
                for _ in parquet.iter_batches(READ_ROWS):  # verifies the checksums of pages, and what they decode to
                    pass
            return list(_differences(parquet.metadata, row)), bool(as_written)
    except FAULTS as error:
        first = str(error).partition("\n")[0]
        return [f"can't be read: {first}"], bool(as_written)


def _differences(metadata: pq.FileMetaData, row: Mapping[str, Any]) -> Iterator[str]:
    """How a file's footer differs from the log."""
    if metadata.num_rows != (rows := row.get("num_records") or metadata.num_rows):
        yield f"has {metadata.num_rows:,} rows, and {rows:,} in the log"
    for place in range(metadata.num_columns):
        name = metadata.schema.column(place).path
        held = [metadata.row_group(group).column(place).statistics for group in range(metadata.num_row_groups)]
        low, high = row.get(f"min.{name}"), row.get(f"max.{name}")
        if isinstance(low, int) and held and all(each and each.has_min_max for each in held):
            ends = min(each.min for each in held), max(each.max for each in held)
            if all(isinstance(end, int) for end in ends) and ends != (low, high):
                yield f"{name} has other bounds in the log"


def _log_faults(settings: Settings, name: str) -> Iterator[tuple[str, str]]:
    """Files of the log that are damaged, missing, or do not agree with others, with what is wrong."""
    path = settings.table_path(name)
    log = folder(settings, f"{path}/_delta_log")
    table = _Log(settings, path, log)
    listed = table.files()
    versions, checkpoints = (_versions(listed, ending) for ending in (".json", ".checkpoint.parquet"))
    if not versions:
        yield "_delta_log", "has no commits"
        return
    files: dict[str, int] | None = {} if versions[0] == 0 else None
    seen: dict[bytes, int] = {}
    before = versions[0] - 1
    with ThreadPoolExecutor(AT_ONCE) as threads:
        for version, (actions, faults) in zip(versions, threads.map(table.commit, versions), strict=True):
            file = commit_file(version)
            if actions is None and not faults and version < min(_versions(table.files(), ".json"), default=0):
                files, before = None, version  # it was removed as an old one meanwhile
                continue
            for missing in range(before + 1, version):
                yield commit_file(missing), "is missing"
            yield from ((file, what) for what in faults)
            before = version
            if actions is None:
                yield from [] if faults else [(file, "is missing")]
                return
            if (same := seen.setdefault(actions.digest, version)) != version:
                yield file, f"is a copy of version {same:,}"
                return
            files = None if files is None else actions.applied_to(files)
            held = None
            if version in checkpoints:
                held, what = table.checkpoint(version)
                if what or (files is not None and held != files):
                    yield file.replace(".json", ".checkpoint.parquet"), what or "does not have the files of its version"
            files = held if files is None else files
            told = table.version_checksum(version) if f"{version:020}.crc" in listed and files is not None else None
            if told and files is not None and told != (len(files), sum(files.values())):
                yield (
                    file,
                    f"leaves {len(files):,} files of {sum(files.values()):,} bytes, not {told[0]:,} of {told[1]:,}",
                )
                return


def _versions(files: Iterable[str], ending: str) -> list[int]:
    return sorted(int(file[:20]) for file in files if file[:20].isdigit() and file[20:] == ending)


@dataclass(frozen=True)
class _Actions:
    digest: bytes
    added: Mapping[str, int]
    removed: frozenset[str]

    def applied_to(self, files: dict[str, int]) -> dict[str, int]:
        for path in self.removed:
            files.pop(path, None)
        files.update(self.added)
        return files


@dataclass(frozen=True)
class _Log:
    settings: Settings
    path: str
    log: Any

    def files(self) -> set[str]:
        return {each["path"] for each in obstore.list_with_delimiter(self.log)["objects"]}

    def commit(self, version: int) -> tuple[_Actions | None, list[str]]:
        """What a commit does to the files, or None if it is not there or can't be read, and what is wrong with it."""
        file = commit_file(version)
        try:
            text = bytes(obstore.get(self.log, file.rpartition("/")[2]).bytes())
            actions = [json.loads(line) for line in text.decode().splitlines()]
            added = {each["add"]["path"]: each["add"]["size"] for each in actions if "add" in each}
            removed = frozenset(each["remove"]["path"] for each in actions if "remove" in each)
        except (ValueError, KeyError, TypeError):
            return None, ["is torn or damaged"]
        except FileNotFoundError:
            return None, []
        if not actions:
            return None, ["is empty"]
        return _Actions(sha256(text).digest(), added, removed), [NOT_AS_WRITTEN] if self._differs(file) else []

    def checkpoint(self, version: int) -> tuple[dict[str, int] | None, str]:
        """The files of a version, or why they can't be read."""
        file = commit_file(version).replace(".json", ".checkpoint.parquet")
        if self._differs(file):
            return None, NOT_AS_WRITTEN
        try:
            with arrow_files(self.settings, self.path).open_input_file(file) as opened:
                parquet = pq.ParquetFile(opened, page_checksum_verification=True)
                if "add" not in parquet.schema_arrow.names:  # a table without files
                    return {}, ""
                batches = parquet.iter_batches(READ_ROWS, columns=["add.path", "add.size"])
                rows = chain.from_iterable(batch["add"].drop_null().to_pylist() for batch in batches)
                return {each["path"]: each["size"] for each in rows}, ""
        except FAULTS as error:
            first = str(error).partition("\n")[0]
            return None, f"can't be read: {first}"

    def version_checksum(self, version: int) -> tuple[int, int] | None:
        """How many files Delta's checksum of the version says that there are, and how many bytes they have."""
        try:
            told = json.loads(bytes(obstore.get(self.log, f"{version:020}.crc").bytes()))
            return int(told["numFiles"]), int(told["tableSizeBytes"])
        except (ValueError, KeyError, TypeError):  # it may be missing, and so it may be torn
            return None

    def _differs(self, file: str) -> bool:
        with suppress(FileNotFoundError):
            return not has_tables(self.settings) and is_as_written(f"{self.path}/{file}") is False
        return False
