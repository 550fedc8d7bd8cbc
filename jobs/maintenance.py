"""Maintenance: no files that no version of the last week needs, few large ones instead of many small, and no old logs."""

import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from itertools import takewhile
from pathlib import Path

from deltalake import DeltaTable

from declarations.pipeline import ENRICHMENTS, SQL_TABLES, WRITTEN
from lakehouse.delta.leases import write_lease
from lakehouse.delta.query import table_names
from lakehouse.errors import BusyError, LakehouseError
from lakehouse.settings import Settings
from lakehouse.spark.causes import cause_of

KEEP_HOURS = 7 * 24
"""Files that left a table later than that stay: a stream or a reader may still need them."""


@dataclass(frozen=True, kw_only=True)
class Maintained:
    table: str
    removed: int = 0
    compacted: int = 0
    """Files that became fewer, larger ones."""
    busy: str = ""
    """Why the table was not compacted, if others wrote it."""
    failed: str = ""


def maintain(settings: Settings) -> Iterator[Maintained]:
    """Vacuum all tables, which makes room, then compact each that nobody writes; a busy one is tried once more.

    What fails keeps no other table from its maintenance: LakehouseError names all that has failed, at the end.
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
    """Remove files that left the table long ago.

    They are unlinked here, as Delta would tell its log of it: this needs no room on a full disk, and no lease.
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
        with write_lease(settings, _leases(vacuumed.table), command="maintain"):
            compacted = DeltaTable(settings.table_path(vacuumed.table)).optimize.compact()["numFilesRemoved"]
    except BusyError as error:
        return replace(vacuumed, busy=str(error))
    except Exception as error:
        return replace(vacuumed, failed=cause_of(error))
    return replace(vacuumed, compacted=compacted)


def _leases(table: str) -> list[str]:
    """A table that no step writes by itself is written by those of others, so it has to wait for all of them."""
    own = (*WRITTEN, *(declared.name for declared in SQL_TABLES), *(facts.shadow for facts in ENRICHMENTS))
    return [table] if table in own else list(WRITTEN)


def clean_logs(folder: Path, *, keep: timedelta) -> int:
    """Remove logs that nobody has written to for so long, with folders that they leave empty; returns how many."""
    before = (datetime.now(UTC) - keep).timestamp()
    removed = 0
    for path, _, names in os.walk(folder, topdown=False):
        for log in (Path(path, name) for name in names if name.endswith(".log")):
            with suppress(FileNotFoundError):  # others may clean too
                if log.stat().st_mtime < before:
                    log.unlink()
                    removed += 1
                    _remove_empty(log.parents, below=folder)
    return removed


def _remove_empty(folders: Sequence[Path], *, below: Path) -> None:
    with suppress(OSError):  # of the first that is not empty
        for folder in takewhile(lambda folder: folder != below, folders):
            folder.rmdir()
