"""Maintenance: remove files that no version of the last week needs, compact small files, and delete old logs."""

import os
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from itertools import takewhile
from pathlib import Path

from deltalake.exceptions import CommitFailedError, DeltaError

from pulsar_lakehouse.errors import BusyError, ConfigurationError, LakehouseError, PermanentError
from pulsar_lakehouse.jobs.snapshots import held_versions
from pulsar_lakehouse.leases.homes import refuse_other_home
from pulsar_lakehouse.leases.leases import PATIENCE
from pulsar_lakehouse.leases.turns import turn_at
from pulsar_lakehouse.locks import exclusive
from pulsar_lakehouse.pipeline.loading import pipeline_of
from pulsar_lakehouse.settings import Settings
from pulsar_lakehouse.spark.error_causes import cause_of
from pulsar_lakehouse.tables.declared import KEEP, LOG_CHECKPOINT_INTERVAL
from pulsar_lakehouse.tables.direct import compact, finish
from pulsar_lakehouse.tables.old_files import log_checkpoint_size, remove_old_files, remove_old_log
from pulsar_lakehouse.tables.stored import stored_table, table_names

LONG_INTERVAL, SHORT_INTERVAL = "100", "10"
"""After how many commits the next log checkpoint is made."""
LARGE = 10_000
"""Files that are named by a large checkpoint: about 1 MB."""


@dataclass(frozen=True, kw_only=True)
class Maintained:
    table: str
    removed: int = 0
    compacted: int = 0
    """Small files that were rewritten to fewer, larger ones."""
    busy: str = ""
    """Why the table was not compacted, if another process was writing it all the time."""
    failed: str = ""

    def __str__(self) -> str:
        compacted = f"not compacted: {self.busy}" if self.busy else f"{self.compacted} small ones compacted"
        told = f"failed: {self.failed}" if self.failed else f"{self.removed} old files removed, {compacted}"
        return f"{self.table:<32} {told}"


def maintain(settings: Settings) -> Iterator[Maintained]:
    """Vacuum all tables, which frees space, then compact them, and space the checkpoints of their logs.

    Tables that are being written come last. Each waits up to 20 minutes for a moment in which it is not, such as
    between two rounds of `lakehouse run --every`. After a failure, the other tables are still maintained. At the end,
    LakehouseError names all tables that failed.
    """
    try:
        refuse_other_home(settings)
    except ConfigurationError:
        raise
    except (OSError, PermanentError):  # a full disk, on which this makes room
        pass
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
        done = _compact(settings, vacuumed, patience=0)
        if done.busy:
            busy.append(vacuumed)
        else:
            yield done
    until = time.monotonic() + PATIENCE
    for vacuumed in busy:
        yield _compact(settings, vacuumed, patience=until - time.monotonic())
    for name in table_names(settings):
        with suppress(BusyError, DeltaError):  # it does so the next time; a log that can't be read was told before
            _space_checkpoints(settings, name, patience=until - time.monotonic())


def _vacuum(settings: Settings, name: str) -> Maintained:
    """Remove files that left the table longer ago than `KEEP`, and the log of the versions that needed them.

    What a snapshot needs stays.
    """
    try:
        needed = held_versions(settings, name)
        removed = remove_old_files(settings, name, keep=KEEP, held=needed)
        remove_old_log(settings, name, keep=KEEP, held=needed)
    except Exception as error:
        return Maintained(table=name, failed=cause_of(error))
    return Maintained(table=name, removed=removed)


def _compact(settings: Settings, vacuumed: Maintained, *, patience: float) -> Maintained:
    if vacuumed.failed:
        return vacuumed
    try:
        table = stored_table(settings, vacuumed.table)
        # An append never conflicts with a compaction, a MERGE that rewrites files of the table does.
        is_appended = table.metadata().configuration.get("delta.appendOnly") == "true"
        writers = [] if is_appended else _writers(settings, vacuumed.table)
        with _turn_at(settings, writers, patience), rewriting(settings):
            table.update_incremental()
            compacted = compact(settings, vacuumed.table, table)
    except (BusyError, CommitFailedError) as error:
        return replace(vacuumed, busy=cause_of(error))
    except Exception as error:
        return replace(vacuumed, failed=cause_of(error))
    return replace(vacuumed, compacted=compacted)


def _space_checkpoints(settings: Settings, name: str, *, patience: float) -> None:
    """Let the log of a table have fewer checkpoints if these are large, as a checkpoint of it takes seconds then.

    With few checkpoints, each reader has to read more commits, which takes longer than a small checkpoint.
    """
    table = stored_table(settings, name)
    wanted = LONG_INTERVAL if log_checkpoint_size(settings, name) > LARGE else SHORT_INTERVAL
    has = table.metadata().configuration.get(LOG_CHECKPOINT_INTERVAL)
    if {has, wanted} == {LONG_INTERVAL, SHORT_INTERVAL}:  # not the user's own value
        with _turn_at(settings, _writers(settings, name), patience):
            table.update_incremental()
            table.alter.set_table_properties({LOG_CHECKPOINT_INTERVAL: wanted})
            finish(settings, name, table)


def _turn_at(settings: Settings, tables: Sequence[str], patience: float) -> AbstractContextManager[object]:
    return turn_at(settings, tables, command="maintain", kind="maintenance", patience=patience)


@contextmanager
def rewriting(settings: Settings) -> Iterator[None]:
    """Held while files are written that a table does not name yet, so that nobody takes them for old ones."""
    with exclusive(settings.home / "leases" / ".rewriting"):
        yield


def _writers(settings: Settings, name: str) -> list[str]:
    """The leases of those who write the table. One without a lease of its own is written by any of the steps."""
    pipeline = pipeline_of(settings)
    shadows = (facts.shadow for facts in pipeline.enrichments)
    own = (*pipeline.written, *(declared.name for declared in pipeline.sql_tables), *shadows)
    return [name] if name in own else list(own)


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
                    with suppress(OSError):  # raised by the first folder that is not empty
                        for parent in takewhile(lambda parent: parent != folder, log.parents):
                            parent.rmdir()
    return removed
