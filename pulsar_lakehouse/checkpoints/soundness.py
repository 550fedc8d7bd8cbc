"""Checks the checkpoints of streams before they start, and removes bad ones.

That loses nothing: without a checkpoint, a stream continues from what its tables hold. A checkpoint only saves time.
"""

import json
import time
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import obstore
from py4j.protocol import Py4JJavaError
from pydantic import ValidationError
from pyspark.sql import SparkSession

from pulsar_lakehouse.checkpoints.batches import UNREAD, VERSION
from pulsar_lakehouse.checkpoints.offsets import TableOffset
from pulsar_lakehouse.progress import CONSOLE
from pulsar_lakehouse.spark.files import Files, java_class
from pulsar_lakehouse.storage import folder, put, time_precision
from pulsar_lakehouse.tables.declared import KEEP, Table, commit_file
from pulsar_lakehouse.tables.lake import Lake

NONE = -1
"""Stands for the number of a batch if there is none."""


class _UnsoundError(Exception):
    """A stream can't continue from its checkpoint; the message says why."""


def create_tables_of(lake: Lake, stream: str, tables: Sequence[Table]) -> None:
    """Create the tables that a stream writes.

    If one of them is younger than the stream's checkpoint, the checkpoint is removed: that table lacks what the stream
    has read before.
    """
    for table in tables:
        lake.create(table)
    path = lake.settings.checkpoint_path(stream)
    if lake.files.exists(f"{path}/metadata"):
        begun = lake.files.modified_at(f"{path}/metadata") + time_precision(path) // timedelta(milliseconds=1)
        younger = [table.name for table in tables if lake.table(table.name).created_at > begun]
        if younger:
            _remove(lake.spark, path, f"{', '.join(younger)}: created after the stream had begun")


def sound_checkpoint(lake: Lake, stream: str, *, reads: Sequence[str] = (), appends_to: str | None = None) -> str:
    """The path of the checkpoint of a stream that is about to start. This process must hold the stream's lease.

    The checkpoint is removed, and a line says why, in these cases: one of its files is torn or lost; the tables that
    the stream `reads`, in the order of its sources, are not those that it has read before, or have changes that it has
    not read for `KEEP`; the table that Spark itself `appends_to` lacks batches that are done, or holds later ones.
    """
    path = lake.settings.checkpoint_path(stream)
    if lake.files.exists(path):
        try:
            known, done, planned = _state(lake.spark, path)
            if planned != NONE and reads:
                _check_read(lake, f"{path}/offsets/{planned}", reads)
                # When a stream starts, it plans its last batch again, from the end of the batch before it.
                _check_log(lake, f"{path}/offsets/{max(planned - 1, 0)}", reads)
            if appends_to and not done <= lake.table(appends_to).committed_batch(known) <= planned:
                raise _UnsoundError(f"{path}: {appends_to} does not hold the batches recorded there")
        except _UnsoundError as problem:
            _remove(lake.spark, path, str(problem))
    return path


def _remove(spark: SparkSession, path: str, why: str) -> None:
    Files(spark).delete(path)
    CONSOLE.say(f"{why}: the checkpoint {path} was removed, and its stream continues from what the tables hold")


def _state(spark: SparkSession, path: str) -> tuple[str, int, int]:
    """The stream's id, its last finished batch and its last planned batch, which can be the same."""
    planned = _last_batch(spark, "OffsetSeqLog", f"{path}/offsets")
    done = _last_batch(spark, "CommitLog", f"{path}/commits")
    for batch in range(max(planned - 1, 0), planned + 1):
        _json_lines(spark, f"{path}/offsets/{batch}")
    if done not in (planned - 1, planned):
        raise _UnsoundError(f"{path}: the last batch in offsets is {planned}, in commits {done}")
    if done != NONE:
        _json_lines(spark, f"{path}/commits/{done}")
    if planned == NONE and not Files(spark).exists(f"{path}/metadata"):  # the stream was killed before it had an id
        return "", done, planned
    [metadata] = _json_lines(spark, f"{path}/metadata", version=None)
    return str(metadata["id"]), done, planned


def _check_read(lake: Lake, path: str, reads: Sequence[str]) -> None:
    offsets = _offsets(lake.spark, path)
    if len(offsets) != len(reads):
        raise _UnsoundError(f"{path}: the stream had {len(offsets)} sources, and has {len(reads)} now")
    for table, offset in zip(reads, offsets, strict=True):
        if offset is None:
            continue
        if offset.table_id != lake.table(table).id:
            raise _UnsoundError(f"{path}: {table} is not the table that the stream has read")
        if offset.version > lake.table(table).version + 1:
            raise _UnsoundError(f"{path}: {table} has gone back to an older version")
        _check_unread(lake, path, table, offset)


def _check_unread(lake: Lake, path: str, table: str, offset: TableOffset) -> None:
    """Maintenance may have removed the files of changes that were not read in time."""
    unread = offset.last_read + 1
    if unread > lake.table(table).version:
        return
    log = lake.settings.table_path(table)
    last_read, first_unread = (f"{log}/{commit_file(version)}" for version in (offset.version, unread))
    is_kept = lake.files.exists(last_read) and lake.files.exists(first_unread)
    if not is_kept or lake.files.modified_at(first_unread) < (datetime.now(UTC) - KEEP).timestamp() * 1000:
        raise _UnsoundError(f"{path}: changes of {table} were not read for {KEEP.days} days, and may be gone")


def batch_context(spark: SparkSession) -> str:
    """What Spark notes with the offsets of a batch that begins now, as JSON: the time, and settings of the session."""
    made = java_class(spark, "org.apache.spark.sql.execution.streaming.checkpointing.OffsetSeqMetadata")
    context = json.loads(made.apply(0, int(time.time() * 1000), spark._jsparkSession.conf()).json())
    # Spark has the number of partitions from a setting of the stream itself.
    context["conf"] = {name: spark.conf.get(name) if held is None else held for name, held in context["conf"].items()}
    return json.dumps(context)


def finished_version(lake: Lake, stream: str, *, reads: str) -> int:
    """The version of the only table it `reads` from which a stream goes on after its last finished batch.

    The stream must read whole versions. 0 if there is no such batch, or if it had read another table. The version is
    noted beside the checkpoints, because it is still needed after the checkpoint was removed.
    """
    path, notes = lake.settings.checkpoint_path(stream), folder(lake.settings, lake.settings.checkpoint_root)
    note = f".finished/{stream}"
    try:
        noted = json.loads(bytes(obstore.get(notes, note).bytes()))
    except (FileNotFoundError, ValueError):  # there is none, or it is torn
        noted = {}
    try:
        done = _last_batch(lake.spark, "CommitLog", f"{path}/commits") if lake.files.exists(path) else NONE
        offsets = [] if done == NONE else _offsets(lake.spark, f"{path}/offsets/{done}")
    except _UnsoundError:
        offsets = []
    id = lake.table(reads).id
    read = [each.last_read + 1 for each in offsets if each is not None and each.table_id == id]
    finished = max([*read, int(noted.get(id, 0))])
    if finished and noted != {id: finished}:
        put(lake.settings, lake.settings.checkpoint_root, note, json.dumps({id: finished}).encode())
    return finished


def _check_log(lake: Lake, path: str, reads: Sequence[str]) -> None:
    for table, offset in zip(reads, _offsets(lake.spark, path), strict=False):
        if offset is not None and not lake.table(table).has_changes_since(offset.version - 1):
            raise _UnsoundError(f"{path}: the log of {table} no longer has version {offset.version}")


def _offsets(spark: SparkSession, path: str) -> list[TableOffset | None]:
    """The offset of each source, all of them tables; None for one that had no data yet."""
    _, *offsets = _json_lines(spark, path)
    try:
        return [None if each is None else TableOffset.model_validate(each) for each in offsets]
    except ValidationError as error:
        raise _UnsoundError(f"{path}: torn") from error


def _json_lines(spark: SparkSession, path: str, *, version: str | None = VERSION) -> list[Any]:
    """The lines of a file as JSON, after the line with the version; None for a line UNREAD.

    Raises _UnsoundError, which names the file, if it is torn or lost.
    """
    try:
        lines = Files(spark).read_text(path).splitlines()
        if version and (len(lines) < 2 or lines.pop(0) != version):
            raise ValueError("no version")
        found = [None if line == UNREAD else json.loads(line) for line in lines]
        if not isinstance(found[0], dict):
            raise ValueError("no object")
        return found
    except (ValueError, IndexError) as error:
        raise _UnsoundError(f"{path}: torn") from error
    except Py4JJavaError as error:
        kind = error.java_exception.getClass().getSimpleName()
        if kind not in ("ChecksumException", "FileNotFoundException"):
            raise
        raise _UnsoundError(f"{path}: {'torn' if kind == 'ChecksumException' else 'lost'}") from error


def _last_batch(spark: SparkSession, log: str, folder: str) -> int:
    made = java_class(spark, f"org.apache.spark.sql.execution.streaming.checkpointing.{log}")
    last = made(spark._jsparkSession, folder, False).getLatestBatchId()
    return int(last.get()) if last.isDefined() else NONE
