"""Which state the pipeline keeps to be exact, how much of it, and for how long. Histories are kept forever."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial

import obstore
import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable

from pulsar_lakehouse.bronze.schemas import SCHEMAS
from pulsar_lakehouse.gold.enrichment.match import Match
from pulsar_lakehouse.pipeline.declared import Pipeline
from pulsar_lakehouse.pipeline.loading import pipeline_of
from pulsar_lakehouse.settings import Settings
from pulsar_lakehouse.storage import folder
from pulsar_lakehouse.tables.stored import dataset_of, existing_tables, files_of

Times = tuple[int, datetime | None, datetime | None]
"""A number of rows, their oldest time and their newest."""


@dataclass(frozen=True, kw_only=True)
class State:
    purpose: str
    rows: int
    """For checkpoints, the number of streams."""
    size: int
    """In bytes. Of rows that share files with others, by their part of the rows."""
    oldest: datetime | None
    newest: datetime | None
    kept: str


@dataclass(frozen=True)
class _Kept:
    """Rows of a table that are state: those with a time, in some of its files."""

    table: str
    purpose: str
    time: tuple[str, ...]
    """The path of the column with the time; empty if all rows are state."""
    kept: str
    of: Callable[[pa.Table], pa.Table] = lambda files: files
    """Picks the files."""


def states(settings: Settings) -> list[State]:
    """The state in the tables that exist, and the checkpoints."""
    tables = dict(existing_tables(settings))
    kept = (each for each in _kept(pipeline_of(settings)) if each.table in tables)
    return [*(_state(each, tables[each.table]) for each in kept), *_checkpoints(settings)]


def _state(kept: _Kept, table: DeltaTable) -> State:
    files = kept.of(files_of(table))
    all_rows, size = (pc.sum(files[name]).as_py() or 0 for name in ("num_records", "size_bytes"))
    rows, oldest, newest = _times(table, files, kept.time) if kept.time else (all_rows, None, None)
    part = size * rows // max(all_rows, 1)
    return State(purpose=kept.purpose, rows=rows, size=part, oldest=oldest, newest=newest, kept=kept.kept)


def _times(table: DeltaTable, files: pa.Table, time: tuple[str, ...]) -> Times:
    """How many rows of the files have a time, the oldest and the newest.

    The table's log says so, but for columns without bounds, such as the later ones of wide tables: they are read.
    """
    column = ".".join(time)
    low, high, nulls = (f"{bound}.{column}" for bound in ("min", "max", "null_count"))
    if not {low, high, nulls} <= set(files.column_names):
        return _times_of_rows(table, files, time)
    rows = pc.subtract(files["num_records"], files[nulls])
    has_bounds = pc.and_(pc.is_valid(files[low]), pc.is_valid(files[high]))
    is_told = pc.fill_null(pc.or_(pc.equal(rows, 0), pc.and_(has_bounds, pc.greater(rows, 0))), False)
    told = files.filter(is_told)
    count, oldest, newest = _times_of_rows(table, files.filter(pc.invert(is_told)), time)
    return (
        count + (pc.sum(rows.filter(is_told)).as_py() or 0),
        min(filter(None, (oldest, pc.min(told[low]).as_py())), default=None),
        max(filter(None, (newest, pc.max(told[high]).as_py())), default=None),
    )


def _times_of_rows(table: DeltaTable, files: pa.Table, time: tuple[str, ...]) -> Times:
    times = dataset_of(table, files).to_table(columns={"time": pc.field(*time)})["time"]
    return pc.count(times).as_py(), pc.min(times).as_py(), pc.max(times).as_py()


def _last_days(files: pa.Table, *, day: str, count: int) -> pa.Table:
    """The files of so many days before the newest one that is not in the future, and of all later days."""
    days = files[f"partition.{day}"]
    past = pc.max(days.filter(pc.less_equal(days, datetime.now(UTC).date()))).as_py()
    return files.filter(pc.greater_equal(days, past - timedelta(count))) if past else files.slice(0, 0)


def _checkpoints(settings: Settings) -> Iterator[State]:
    listed = obstore.list(folder(settings, settings.checkpoint_root))
    if files := [file for batch in listed for file in batch]:
        yield State(
            purpose="checkpoints",
            rows=len({stream for file in files if not (stream := file["path"].partition("/")[0]).startswith(".")}),
            size=sum(file["size"] for file in files),
            oldest=min(file["last_modified"] for file in files),
            newest=max(file["last_modified"] for file in files),
            kept="100 batches",
        )


def _until(match: Match) -> str:
    """How long the rows of an entity are kept as partners."""
    entity = match.entity
    return f"deleted_at + {entity.keep_deleted} d" if match.may_be_purged else "forever"


def _kept(pipeline: Pipeline) -> Iterator[_Kept]:
    for entity in pipeline.entities:
        if entity.keeps_history:
            yield _Kept(entity.history.name, f"versions of {entity.name}", ("sequence", "event_time"), "forever")
        yield _Kept(entity.table.name, f"deleted {entity.name}", ("deleted_at",), f"{entity.keep_deleted} d")
    for each in pipeline.enrichments:
        purpose, days = f"{each.topic.name}, to find duplicates", each.dedup_days
        needed = partial(_last_days, day=each.day, count=days)
        yield _Kept(each.gold_table, purpose, (each.event_time,), f"{days} d", needed)
        yield _Kept(each.waiting.name, f"waiting {each.topic.name}", ("waiting_since",), f"{each.retry_days} d")
        for match in each.matches:
            yield _Kept(match.table, f"{match.entity.name}, to match {each.topic.name}", (match.time,), _until(match))
    yield _Kept(SCHEMAS.name, "schemas of messages", (), "forever")
