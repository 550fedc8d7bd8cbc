"""Removes what present readers of a table don't need: data files of older versions, and the log of these versions.

Files are deleted here because Delta would record a vacuum in the table's log. So this works on a full disk, and
without a lease.
"""

import json
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from itertools import pairwise

import obstore

from pulsar_lakehouse.settings import Settings
from pulsar_lakehouse.storage import files_in, folder, sync_table
from pulsar_lakehouse.tables.checksums import checksum_path
from pulsar_lakehouse.tables.declared import LAST_LOG_CHECKPOINT
from pulsar_lakehouse.tables.stored import stored_table

_OF_VERSION = re.compile(r"_delta_log/\.?(\d{20})\.")
RECENT = timedelta(hours=1)
"""How long a log checkpoint or a checksum is kept after the next one was written: somebody may be about to read it."""


def remove_old_files(settings: Settings, table: str, *, keep: timedelta, held: Sequence[int] = ()) -> int:
    """Remove data files and change files that left the table longer ago than `keep`; returns how many.

    The files of the versions in `held` stay.
    """
    old = stored_table(settings, table).vacuum(
        keep // timedelta(hours=1), dry_run=True, full=True, enforce_retention_duration=False, keep_versions=list(held)
    )
    if not old:
        return 0
    # Those that an earlier run has removed are named again.
    there = files_in(settings, settings.table_path(table)).keys()
    gone = there & old
    gone -= set(map(checksum_path, there - gone))  # in folders of partitions, delta-rs takes these for old files, too
    checksums = there & set(map(checksum_path, gone))
    _delete(settings, table, gone | checksums)
    return len(gone - checksums)


def remove_old_log(settings: Settings, table: str, *, keep: timedelta, held: Sequence[int] = ()) -> int:
    """Remove the log of versions before the last log checkpoint that is older than `keep`; returns how many files.

    The log has values of rows that have left the table since. What the versions in `held` need stays.
    """
    written = files_in(settings, settings.table_path(table), "_delta_log")
    of_version = {path: int(found[1]) for path in written if (found := _OF_VERSION.match(path))}
    committed = {of_version[path]: written[path] for path in _of_kind(written, "json")}
    before = datetime.now(UTC) - keep
    complete = [of_version[path] for path in _of_kind(written, "checkpoint.parquet")]
    old = [version for version in complete if not keep or (version in committed and committed[version] <= before)]
    kept_from = max((version for version in old if version <= min(held, default=version)), default=0)
    removed = {path for path, version in of_version.items() if version < kept_from}
    kept = {path: at for path, at in written.items() if path not in removed}
    gone = removed | _surplus(kept)
    return _delete(settings, table, gone | (written.keys() & set(map(checksum_path, gone))))


def _surplus(kept: Mapping[str, datetime]) -> set[str]:
    """The checksums and log checkpoints that have had a successor for an hour; not the first checkpoint of a day.

    A log checkpoint of a table that is written every few seconds names hundreds of thousands of files.
    """
    before = datetime.now(UTC) - RECENT
    checkpoints, checksums = _of_kind(kept, "checkpoint.parquet"), _of_kind(kept, "crc")
    replaced = {path for kind in (checkpoints, checksums) for path, later in pairwise(kind) if kept[later] < before}
    first_of_day = {kept[path].date(): path for path in reversed(checkpoints)}
    return replaced - {*checkpoints[:1], *first_of_day.values()}


def _of_kind(paths: Iterable[str], ending: str) -> list[str]:
    """The files of versions with this ending, sorted by version."""
    return sorted(path for path in paths if re.fullmatch(rf"_delta_log/\d{{20}}\.{ending}", path))


def log_checkpoint_size(settings: Settings, table: str) -> int:
    """How many files the last log checkpoint names, with those that left the table; 0 if that is not known."""
    try:
        told = obstore.get(folder(settings, settings.table_path(table)), LAST_LOG_CHECKPOINT).bytes()
        return int(json.loads(bytes(told))["size"])
    except (FileNotFoundError, ValueError, KeyError):  # it is only a hint, which can be torn
        return 0


def _delete(settings: Settings, table: str, paths: Collection[str]) -> int:
    if not paths:
        return 0
    store = folder(settings, settings.table_path(table))
    sync_table(settings, table)  # what makes up for these files, such as a log checkpoint
    try:
        obstore.delete(store, sorted(paths))
    except FileNotFoundError:  # another process removes them, too
        for path in paths:
            with suppress(FileNotFoundError):
                obstore.delete(store, path)
    return len(paths)
