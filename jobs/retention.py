"""Which state the pipeline keeps to be exact, and for how long. Histories are kept forever."""

from collections.abc import Iterator
from dataclasses import dataclass

from lakehouse.delta.query import existing_tables, query
from lakehouse.settings import Settings
from pipeline.declared import Pipeline
from pipeline.loading import pipeline_of


@dataclass(frozen=True, kw_only=True)
class State:
    purpose: str
    rows: int
    kept: str


def states(settings: Settings) -> list[State]:
    """The state in the tables that exist."""
    known = {name for name, _ in existing_tables(settings)}
    return [
        State(purpose=purpose, rows=query(settings, f"SELECT count(*) FROM {what}").fetchall()[0][0], kept=kept)
        for table, what, purpose, kept in _queries(pipeline_of(settings))
        if table in known
    ]


def _queries(pipeline: Pipeline) -> Iterator[tuple[str, str, str, str]]:
    for entity in pipeline.entities:
        table = entity.table.name
        if entity.keeps_history:
            history = entity.history.name
            yield history, history, f"versions of {entity.name}, to join as of a time", "forever"
        deleted = f"{table} WHERE deleted_at IS NOT NULL"
        yield (
            table,
            deleted,
            f"deleted {entity.name}, which older messages can't bring back",
            f"{entity.keep_deleted} d",
        )
    for each in pipeline.enrichments:
        facts, day, gold = each.topic.name, each.day, each.gold_table
        since = f"(SELECT max({day}) - {each.dedup_days} FROM {gold} WHERE {day} <= current_date)"
        yield gold, f"{gold} WHERE {day} >= {since}", f"{facts}, to find duplicates", f"{each.dedup_days} d"
        yield (
            each.waiting.name,
            each.waiting.name,
            f"waiting {facts}, which are retried automatically",
            f"{each.retry_days} d",
        )
