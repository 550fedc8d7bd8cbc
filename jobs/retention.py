"""Which state the pipeline keeps to be exact, how much of it, and for how long. Histories are kept forever."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime

import obstore

from bronze.writer_schemas import WRITER_SCHEMAS
from lakehouse.delta.query import existing_tables, query
from lakehouse.settings import Settings
from lakehouse.storage import folder
from pipeline.declared import Pipeline
from pipeline.loading import pipeline_of


@dataclass(frozen=True, kw_only=True)
class State:
    purpose: str
    rows: int
    """For checkpoints, the number of streams."""
    size: int
    """In bytes. Of rows that share a table with others, by their part of its rows."""
    oldest: datetime | None
    newest: datetime | None
    kept: str


@dataclass(frozen=True, kw_only=True)
class _Kept:
    """Rows of a table that are state: which of them, and the SQL for their time."""

    table: str
    purpose: str
    time: str
    kept: str
    where: str = "true"


def states(settings: Settings) -> list[State]:
    """The state in the tables that exist, and the checkpoints."""
    sizes = {
        name: sum(table.get_add_actions(flatten=True)["size_bytes"].to_pylist())
        for name, table in existing_tables(settings)
    }
    kept = (each for each in _kept(pipeline_of(settings)) if each.table in sizes)
    return [*(_state(settings, each, sizes[each.table]) for each in kept), *_checkpoints(settings)]


def _state(settings: Settings, kept: _Kept, size: int) -> State:
    numbers = f"count(*) FILTER (WHERE {kept.where}), count(*)"
    times = f"min({kept.time}) FILTER (WHERE {kept.where}), max({kept.time}) FILTER (WHERE {kept.where})"
    [found] = query(settings, f"SELECT {numbers}, {times} FROM {kept.table}").fetchall()
    rows, all_rows, oldest, newest = found
    part = size * rows // max(all_rows, 1)
    return State(purpose=kept.purpose, rows=rows, size=part, oldest=oldest, newest=newest, kept=kept.kept)


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


def _kept(pipeline: Pipeline) -> Iterator[_Kept]:
    event_time = "sequence.event_time"
    for entity in pipeline.entities:
        name = entity.name
        if entity.keeps_history:
            yield _Kept(table=entity.history.name, purpose=f"versions of {name}", time=event_time, kept="forever")
        yield _Kept(
            table=entity.table.name,
            purpose=f"deleted {name}",
            time="deleted_at",
            kept=f"{entity.keep_deleted} d",
            where="deleted_at IS NOT NULL",
        )
    for each in pipeline.enrichments:
        facts, day, gold = each.topic.name, each.day, each.gold_table
        since = f"(SELECT max({day}) - {each.dedup_days} FROM {gold} WHERE {day} <= current_date)"
        yield _Kept(
            table=gold,
            purpose=f"{facts}, to find duplicates",
            time=each.event_time,
            kept=f"{each.dedup_days} d",
            where=f"{day} >= {since}",
        )
        yield _Kept(
            table=each.waiting.name,
            purpose=f"waiting {facts}",
            time="waiting_since",
            kept=f"{each.retry_days} d",
        )
    yield _Kept(table=WRITER_SCHEMAS.name, purpose="schemas of Avro messages", time="NULL", kept="forever")
