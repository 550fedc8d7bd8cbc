"""Write judged facts where they belong, so that each is somewhere at any moment, and in one place in the end.

They come with `held`, what gold has of them or NULL; `is_settled`, if that is as it should be; and `is_waiting`, if
they are in quarantine. Where a crash left a fact in both, the next to judge it puts that right.
"""

from collections.abc import Callable, Sequence
from functools import partial, reduce

from delta.tables import DeltaMergeBuilder
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from gold.enrichment import Enrichment
from gold.judging import MISSING
from lakehouse.settings import Settings
from lakehouse.tables import append, append_missing, delta_table, kept, pin_table

Write = Callable[[Settings, Enrichment, DataFrame], None]

Near = Callable[..., Column]
"""Bounds on days and keys that skip most files of a table; for its columns, or with a prefix to them."""


def near_to(facts: Sequence[DataFrame], enrichment: Enrichment) -> Near | None:
    """Where facts with the same keys can be. None without facts."""
    columns = [enrichment.day, *enrichment.keys]
    rows = reduce(DataFrame.union, (each.select(*columns) for each in facts))
    bounds = rows.agg(*(F.struct(F.min(name).alias("low"), F.max(name).alias("high")).alias(name) for name in columns))
    found = bounds.first()
    if found is None or found[enrichment.day].low is None:
        return None
    # Spark's dates go on where Python's end, and it takes the year 1 from Python as text only.
    low, high = (F.lit(day.isoformat()).cast("date") for day in found[enrichment.day])
    horizon = enrichment.duplicate_horizon

    def within(prefix: str = "") -> Column:
        day = F.col(prefix + enrichment.day).between(F.date_sub(low, horizon), F.date_add(high, horizon))
        keys = (F.col(prefix + key).between(F.lit(found[key].low), F.lit(found[key].high)) for key in enrichment.keys)
        return reduce(Column.__and__, keys, day)

    return within


def place(settings: Settings, enrichment: Enrichment, judged: DataFrame, near: Near, *, at_once: bool = False) -> None:
    """Write what was judged and is kept; gold in one commit if it must be `at_once`, which costs more."""
    added = "held IS NULL AND missing_entity IS NULL"
    corrected = "held IS NOT NULL AND NOT is_settled"
    if at_once:
        added, corrected = "false", f"({corrected}) OR ({added})"
    writes: dict[str, Write] = {
        "missing_entity IS NOT NULL AND NOT is_waiting": _begin_waiting,
        added: _add_to_gold,
        corrected: partial(_correct_gold, near=near, adds=at_once),
        "is_waiting": _end_waiting,
    }
    [counts] = judged.agg(*(F.count_if(F.expr(which)) for which in writes)).collect()
    for count, (which, write) in zip(counts, writes.items(), strict=True):
        if count:
            write(settings, enrichment, judged.where(which))


def write_duplicates(settings: Settings, enrichment: Enrichment, repeats: DataFrame) -> None:
    duplicates = repeats.where("duplicate_of IS NOT NULL").select(
        *enrichment.columns, "position", "duplicate_of", F.current_timestamp().alias("found_at")
    )
    if not duplicates.isEmpty():
        append_missing(duplicates, settings, enrichment.duplicates.name, on=["position"])


def discard(settings: Settings, enrichment: Enrichment, positions: DataFrame) -> None:
    """Move the waiting facts that were given up; those that wait no more stay where they are."""
    waiting = pin_table(positions.sparkSession, settings, enrichment.waiting.name)
    with kept(waiting.join(positions, on="position", how="left_semi").select(*waiting.columns)) as rows:
        append_missing(rows, settings, enrichment.discarded.name, on=["position"])
        _merge(rows.select("position"), settings, enrichment.waiting.name).whenMatchedDelete().execute()


def remove(settings: Settings, tables: Sequence[str], positions: DataFrame) -> None:
    """Take rows out of tables, if there are any."""
    if not positions.isEmpty():
        for table in tables:
            _merge(positions, settings, table).whenMatchedDelete().execute()


def _begin_waiting(settings: Settings, enrichment: Enrichment, facts: DataFrame) -> None:
    since = {"attempts": F.lit(1), "waiting_since": F.current_timestamp()}
    rows = facts.select(*enrichment.columns, "position", enrichment.day, *MISSING).withColumns(since)
    append(rows, settings, enrichment.waiting.name)


def _add_to_gold(settings: Settings, enrichment: Enrichment, facts: DataFrame) -> None:
    append(facts.select(*enrichment.gold_columns), settings, enrichment.gold_table)


def _correct_gold(settings: Settings, enrichment: Enrichment, facts: DataFrame, near: Near, *, adds: bool) -> None:
    """Facts get the state that they should have; those that wait for it leave gold, and new ones come if it `adds`."""
    rows = facts.select(*enrichment.gold_columns, F.col("missing_entity").isNotNull().alias("is_gone"))
    columns: dict[str, str | Column] = {name: f"new.{name}" for name in enrichment.gold_columns}
    merge = _merge(rows, settings, enrichment.gold_table, near("held."))
    merge = merge.whenMatchedDelete("new.is_gone").whenMatchedUpdate(set=columns)
    if adds:  # a full outer join, which sorts all that it reads
        merge = merge.whenNotMatchedInsert("NOT new.is_gone", columns)
    merge.execute()


def _end_waiting(settings: Settings, enrichment: Enrichment, facts: DataFrame) -> None:
    """Facts that are in gold now wait no more; the others wait on, with one more attempt."""
    rows = facts.select("position", *MISSING, F.col("missing_entity").isNull().alias("is_done"))
    retry: dict[str, str | Column] = {name: f"new.{name}" for name in MISSING}
    (
        _merge(rows, settings, enrichment.waiting.name)
        .whenMatchedDelete("new.is_done")
        .whenMatchedUpdate(set=retry | {"attempts": "held.attempts + 1"})
        .execute()
    )


def _merge(rows: DataFrame, settings: Settings, table: str, near: Column | None = None) -> DeltaMergeBuilder:
    """A MERGE of `new` rows with those `held` at the same position."""
    same = F.expr("held.position = new.position")
    held = delta_table(rows.sparkSession, settings, table).alias("held")
    return held.merge(rows.alias("new"), same if near is None else near & same)
