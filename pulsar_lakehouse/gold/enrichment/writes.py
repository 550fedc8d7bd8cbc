"""Write facts to the tables where they belong. At any moment each fact is in some table, and finally in exactly one.

A crash can leave a fact both in gold and waiting. The next batch that recomputes the fact corrects that.
"""

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace
from datetime import date, timedelta
from functools import reduce
from typing import NamedTuple, TypeVar

import pyarrow as pa
from pyspark.sql import Column, DataFrame, Observation
from pyspark.sql import functions as F

from pulsar_lakehouse.contracts.checks import Mode, of_mode, stop_if_failed
from pulsar_lakehouse.gold.enrichment.declaration import Enrichment
from pulsar_lakehouse.gold.enrichment.events import bounds as lowest_and_highest
from pulsar_lakehouse.gold.enrichment.lookups import LACKS
from pulsar_lakehouse.gold.enrichment.matches import CURRENT
from pulsar_lakehouse.limits import FEW
from pulsar_lakehouse.spark.frames import cached, frame_of, of_keys
from pulsar_lakehouse.tables.direct import Merge, Within, widened
from pulsar_lakehouse.tables.lake import Lake, Pinned
from pulsar_lakehouse.tables.reading import LeftToSparkError, find_rows, rows_if_small
from pulsar_lakehouse.tables.stored import Ranges

End = TypeVar("End")


def bounds_of(facts: DataFrame, enrichment: Enrichment) -> tuple[int, Ranges]:
    """The number of facts, and their lowest and highest day and keys."""
    [[number, ends]] = facts.agg(F.count("*"), lowest_and_highest(facts, enrichment, F.lit(True))).collect()
    return number, ends.asDict()


class Pruning(NamedTuple):
    """A condition on days and keys that skips most files of a table."""

    rows: Column
    """Over the table's columns."""
    within: Within
    """The same for a MERGE."""


def pruning_filter(bounds: Ranges, enrichment: Enrichment) -> Pruning:
    """The condition for all rows that can have the same keys as facts within these bounds."""
    first, last = bounds[enrichment.day]
    days, keys = enrichment.dedup_days, {key: rounded(*bounds[key]) for key in enrichment.keys}

    def over(prefix: str) -> Column:
        low, high = (F.lit(day).cast("date") for day in (first, last))
        day = F.col(prefix + enrichment.day).between(F.date_sub(low, days), F.date_add(high, days))
        among = (F.col(prefix + key).between(*map(F.lit, ends)) for key, ends in keys.items())
        return reduce(Column.__and__, among, day)

    ranges = {key: ends for key, ends in keys.items() if isinstance(ends[0], int) and not isinstance(ends[0], bool)}
    with suppress(ValueError, OverflowError):  # Python has no dates of all years
        margin = timedelta(days)
        ranges[enrichment.day] = (date.fromisoformat(first) - margin, date.fromisoformat(last) + margin)
    return Pruning(over(""), Within(over("held."), ranges))


def rounded(low: End, high: End) -> tuple[End, End]:
    """Wider bounds, which near keys of small batches share.

    Numbers are part of the code that Spark generates, so with new ones it compiles thousands of lines again. Where they
    are far apart, the wider search would cost more than that.
    """
    if isinstance(low, bool) or not isinstance(low, int) or not isinstance(high, int) or high - low > 2 * FEW:
        return low, high
    return widened(low, high)  # type: ignore[return-value]


def placed_keys(lake: Lake, enrichment: Enrichment, pruning: Pruning) -> DataFrame:
    """The keys, days and positions of facts that are in gold, waiting or discarded."""
    columns = (*enrichment.keys, enrichment.day, "position")
    tables = (rows_if_small(table, columns=columns) for table in _places(lake, enrichment))
    return reduce(DataFrame.union, (table.where(pruning.rows) for table in tables))


def _places(lake: Lake, enrichment: Enrichment) -> list[Pinned]:
    names = enrichment.gold_table, enrichment.waiting.name, enrichment.discarded.name
    return [lake.table(name).pin() for name in names]


def placed_of(keys: DataFrame, lake: Lake, enrichment: Enrichment, pruning: Pruning) -> DataFrame:
    """Like `placed_keys`, of the facts that have one of these few keys."""
    wanted, within = keys.toArrow(), pruning.within.ranges
    columns = [*enrichment.keys, enrichment.day, "position"]
    tables = _places(lake, enrichment)
    with suppress(LeftToSparkError):
        rows = [find_rows(table, wanted, columns=columns, within=within, are_rare=True) for table in tables]
        return frame_of(lake.spark, pa.concat_tables(rows, promote_options="permissive"))
    near = (table.rows.where(pruning.rows).select(*columns) for table in tables)
    return of_keys(reduce(DataFrame.union, near), F.broadcast(keys))


def with_current(facts: DataFrame, *, gold: DataFrame, enrichment: Enrichment) -> DataFrame:
    """Adds `_current`, the fact's row in gold as a struct, or NULL."""
    rows = gold.select("position", F.struct(*enrichment.gold_columns).alias(CURRENT))
    return facts.join(rows, on="position", how="left")


def write_new(lake: Lake, enrichment: Enrichment, wanted: DataFrame, *, number: int) -> None:
    """Add facts that are in no table yet to gold, or to the waiting facts if they lack state.

    `number` is the number of facts, or an upper bound. More than a few are not cached, but joined again for those that
    wait. Raises PermanentError, before anything is written, if a check stops it.
    """
    is_missing = F.col("missing").isNotNull()
    if number > FEW and not of_mode(enrichment.checks, Mode.FAIL):
        written = Observation()
        counted = wanted.observe(written, F.count_if(is_missing).alias("missing"))
        _add_to_gold(lake, enrichment, counted.where(~is_missing))
        if written.get.get("missing", 1):
            _begin_waiting(lake, enrichment, wanted.where(is_missing))
        return
    with cached(wanted) as wanted:
        _stop_if_failed(enrichment, wanted.where(~is_missing))
        [[rows, waiting]] = wanted.agg(F.count("*"), F.count_if(is_missing)).collect()
        sized = lake.writing(rows, wanted)
        if rows > waiting:
            _add_to_gold(sized, enrichment, wanted.where(~is_missing))
        if waiting:
            with sized.sized(waiting if number <= FEW else number, interpreted=True) as lacking:
                _begin_waiting(lacking, enrichment, wanted.where(is_missing))


def stop_if_difference_fails(enrichment: Enrichment, wanted: DataFrame, *, is_changed: Column) -> None:
    """Raises PermanentError if a row that `write_difference` would write to gold fails a check that stops it."""
    is_written = F.col("missing").isNull() & (F.col(CURRENT).isNull() | is_changed)
    _stop_if_failed(enrichment, wanted.where(is_written))


def write_difference(
    lake: Lake,
    enrichment: Enrichment,
    wanted: DataFrame,
    pruning: Pruning,
    *,
    is_changed: Column,
    at_once: bool = False,
) -> None:
    """Update gold and the waiting facts to what is wanted.

    `wanted` are cached facts from `look_up`, with `_current`, their row in gold or NULL, and `_is_waiting`. A row of
    gold is corrected if it lacks state now, or if `is_changed` is TRUE. With `at_once`, gold is written in one commit,
    which costs more if rows are both added and corrected.
    """
    is_missing, in_gold, is_waiting = F.col("missing").isNotNull(), F.col(CURRENT).isNotNull(), F.col("_is_waiting")
    begins, is_added, is_corrected = (
        is_missing & ~is_waiting,
        ~is_missing & ~in_gold,
        in_gold & (is_missing | is_changed),
    )
    counts = map(F.count_if, (begins, is_added, is_corrected, is_waiting))
    [[rows, begun, added, corrected, waiting]] = wanted.agg(F.count("*"), *counts).collect()
    sized = lake.writing(rows, wanted)
    if begun:
        _begin_waiting(sized, enrichment, wanted.where(begins))
    if added and corrected and at_once:
        _correct_gold(sized, enrichment, wanted.where(is_added | is_corrected), pruning, adds=True)
    else:
        if added:
            _add_to_gold(sized, enrichment, wanted.where(is_added))
        if corrected:
            _correct_gold(sized, enrichment, wanted.where(is_corrected), pruning)
    if waiting:
        _end_waiting(sized, enrichment, wanted.where(is_waiting))


def write_duplicates(lake: Lake, enrichment: Enrichment, duplicates: DataFrame, *, are_new: bool = False) -> None:
    """Add the cached facts with `duplicate_of` to the duplicates. With `are_new`, none of them can be there already."""
    rows = duplicates.where("duplicate_of IS NOT NULL").select(
        *enrichment.columns, "position", "duplicate_of", F.current_timestamp().alias("found_at")
    )
    table = lake.table(enrichment.duplicates.name)
    if are_new:
        table.append(rows)
    elif not rows.isEmpty():
        table.append_missing(rows, on=["position"])


def discard(lake: Lake, enrichment: Enrichment, positions: DataFrame) -> None:
    """Move waiting facts to the discarded ones. Facts at these positions that are not waiting stay where they are."""
    waiting = lake.table(enrichment.waiting.name).pin().rows
    chosen = waiting.join(positions, on="position", how="left_semi").select(*waiting.columns)
    with cached(chosen) as rows:
        sized = lake.writing(rows.count(), rows)
        sized.table(enrichment.discarded.name).append_missing(rows, on=["position"])
        sized.table(enrichment.waiting.name).merge(rows.select("position"), Merge(on=["position"], delete=True))


def remove(lake: Lake, tables: Iterable[str], positions: DataFrame) -> None:
    """Delete the rows at these positions from the tables, if there are any positions."""
    if number := positions.count():
        sized = lake.writing(number, positions)
        for table in tables:
            sized.table(table).merge(positions, Merge(on=["position"], delete=True))


def _stop_if_failed(enrichment: Enrichment, rows: DataFrame) -> None:
    """Raises PermanentError if one of the rows, which are about to be written to gold, fails a check that stops it."""
    stop_if_failed(rows, enrichment.checks, table=enrichment.gold_table, keys=(*enrichment.keys, "position"))


def _begin_waiting(lake: Lake, enrichment: Enrichment, facts: DataFrame) -> None:
    since = {"attempts": F.lit(1), "waiting_since": F.current_timestamp()}
    rows = facts.select(*enrichment.columns, "position", enrichment.day, *LACKS).withColumns(since)
    lake.table(enrichment.waiting.name).append(rows)


def _add_to_gold(lake: Lake, enrichment: Enrichment, facts: DataFrame) -> None:
    lake.table(enrichment.gold_table).append(facts.select(*enrichment.gold_columns))


def _correct_gold(
    lake: Lake, enrichment: Enrichment, facts: DataFrame, pruning: Pruning, *, adds: bool = False
) -> None:
    """Update the state of facts in gold, and remove facts without usable state. With `adds`, also insert new facts."""
    rows = facts.select(*enrichment.gold_columns, F.col("missing").isNotNull().alias("_is_gone"))
    columns = {name: f"new.`{name}`" for name in enrichment.gold_columns}
    how = Merge(on=["position"], within=pruning.within, delete="new._is_gone", update=columns)
    if adds:  # for Spark a full join, which sorts everything it reads
        how = replace(how, insert=columns, insert_if="NOT new._is_gone")
    lake.table(enrichment.gold_table).merge(rows, how)


def _end_waiting(lake: Lake, enrichment: Enrichment, facts: DataFrame) -> None:
    """Remove facts that are in gold now from the waiting facts. Update the others, and count one more attempt."""
    names = (*enrichment.columns, enrichment.day, *LACKS)
    rows = facts.select("position", *names, F.col("missing").isNull().alias("_is_done"))
    retry = {name: f"new.`{name}`" for name in names} | {"attempts": "held.attempts + 1"}
    how = Merge(on=["position"], delete="new._is_done", update=retry)
    lake.table(enrichment.waiting.name).merge(rows, how)
