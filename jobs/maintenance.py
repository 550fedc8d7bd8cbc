"""Upkeep: few large files instead of many small ones, none that no version of the last week needs, and no old logs."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from deltalake import DeltaTable

from jobs.pipeline import SQL_TABLES, WRITTEN
from lakehouse.errors import BusyError
from lakehouse.leases import write_lease
from lakehouse.query import existing_tables
from lakehouse.settings import Settings

KEEP_HOURS = 7 * 24
"""Files that left a table later than that stay: a stream or a reader may still need them."""


@dataclass(frozen=True, kw_only=True)
class Upkeep:
    table: str
    compacted: int = 0
    """Files that became fewer, larger ones."""
    removed: int = 0
    busy: str = ""
    """Why the table was left alone, if it was."""


def maintain(settings: Settings) -> Iterator[Upkeep]:
    """Compact and vacuum each table that nobody writes right now."""
    for name, table in existing_tables(settings):
        try:
            with write_lease(settings, _leases(name)):
                yield _keep_up(name, table)
        except BusyError as error:
            yield Upkeep(table=name, busy=str(error))


def _leases(table: str) -> list[str]:
    """A table that no step writes by itself is written by those of others, so it has to wait for all of them."""
    return [table] if table in (*WRITTEN, *(declared.name for declared in SQL_TABLES)) else list(WRITTEN)


def _keep_up(name: str, table: DeltaTable) -> Upkeep:
    table.update_incremental()  # as it may have changed before its lease was free
    compacted = table.optimize.compact()["numFilesRemoved"]
    removed = table.vacuum(retention_hours=KEEP_HOURS, dry_run=False, full=True)
    return Upkeep(table=name, compacted=compacted, removed=len(removed))


def clean_logs(folder: Path, *, keep: timedelta) -> int:
    """Remove logs that nobody has written to for so long; returns how many there were."""
    before = (datetime.now(UTC) - keep).timestamp()
    old = [log for log in folder.rglob("*.log") if log.stat().st_mtime < before]
    for log in old:
        log.unlink()
    return len(old)
