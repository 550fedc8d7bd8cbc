"""Maintenance: remove files that no version of the last week needs, compact small files, and delete old logs."""

import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from itertools import takewhile
from pathlib import Path

from deltalake import DeltaTable

from lakehouse.delta.leases import write_lease
from lakehouse.delta.query import table_names
from lakehouse.errors import BusyError, LakehouseError
from lakehouse.settings import Settings
from lakehouse.spark.error_causes import cause_of
from pipeline.declared import Pipeline
from pipeline.loading import pipeline_of

KEEP_HOURS = 7 * 24
"""Hours for which files that left a table are kept: a stream or a reader may still need them."""


@dataclass(frozen=True, kw_only=True)
class Maintained:
    table: str
    removed: int = 0
    compacted: int = 0
    """Small files that were rewritten to fewer, larger ones."""
    busy: str = ""
    """Why the table was not compacted, if another process was writing it."""
    failed: str = ""


def maintain(settings: Settings) -> Iterator[Maintained]:
    """Vacuum all tables, which frees space, then compact those that nobody is writing. A busy one is retried once.

    After a failure, the other tables are still maintained. At the end, LakehouseError names all tables that failed.
    """
    failed = []
    for done in _keep_up(settings):
        yield done
        if done.failed:
            failed.append(f"{done.table}: {done.failed}")
    if failed:
        raise LakehouseError("; ".join(failed))


def _keep_up(settings: Settings) -> Iterator[Maintained]:
    busy = []
    for vacuumed in [_vacuum(settings, name) for name in table_names(settings)]:
        done = _compact(settings, vacuumed)
        if done.busy:
            busy.append(vacuumed)
        else:
            yield done
    for vacuumed in busy:
        yield _compact(settings, vacuumed)


def _vacuum(settings: Settings, name: str) -> Maintained:
    """Remove files that left the table more than `KEEP_HOURS` ago.

    They are unlinked here because Delta would record the vacuum in the table's log. So this works on a full disk, and
    without a lease.
    """
    path = settings.table_path(name)
    try:
        old = [Path(path, file) for file in DeltaTable(path).vacuum(KEEP_HOURS, dry_run=True, full=True)]
        there = [file for file in old if file.exists()]
        for file in there:
            file.unlink(missing_ok=True)
    except Exception as error:
        return Maintained(table=name, failed=cause_of(error))
    return Maintained(table=name, removed=len(there))


def _compact(settings: Settings, vacuumed: Maintained) -> Maintained:
    if vacuumed.failed:
        return vacuumed
    try:
        with write_lease(settings, _leases(pipeline_of(settings), vacuumed.table), command="maintain"):
            compacted = DeltaTable(settings.table_path(vacuumed.table)).optimize.compact()["numFilesRemoved"]
    except BusyError as error:
        return replace(vacuumed, busy=str(error))
    except Exception as error:
        return replace(vacuumed, failed=cause_of(error))
    return replace(vacuumed, compacted=compacted)


def _leases(pipeline: Pipeline, table: str) -> list[str]:
    """The leases that guard a table. A table without its own is written by any of the steps, so it needs all leases."""
    shadows = (facts.shadow for facts in pipeline.enrichments)
    own = (*pipeline.written, *(declared.name for declared in pipeline.sql_tables), *shadows)
    return [table] if table in own else list(pipeline.written)


def clean_logs(folder: Path, *, keep: timedelta) -> int:
    """Delete `*.log` files unchanged for `keep`, and folders that become empty; returns the number of files."""
    before = (datetime.now(UTC) - keep).timestamp()
    removed = 0
    for path, _, names in os.walk(folder, topdown=False):
        for log in (Path(path, name) for name in names if name.endswith(".log")):
            with suppress(FileNotFoundError):  # another process may clean up too
                if log.stat().st_mtime < before:
                    log.unlink()
                    removed += 1
                    _remove_empty(log.parents, below=folder)
    return removed


def _remove_empty(folders: Sequence[Path], *, below: Path) -> None:
    with suppress(OSError):  # raised by the first folder that is not empty
        for folder in takewhile(lambda folder: folder != below, folders):
            folder.rmdir()
