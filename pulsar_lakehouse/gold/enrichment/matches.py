"""Join facts with the rows of an entity that match them within an interval, and find the facts that a row concerns.

Gold is a function of the fact, of the rows that the entity has now, and of whether the interval is over: in whatever
order and batches messages come, the tables end the same.
"""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from functools import reduce

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, StructType

from pulsar_lakehouse.contracts.keys import key_text
from pulsar_lakehouse.gold.enrichment.events import LOSS
from pulsar_lakehouse.gold.enrichment.match import Match
from pulsar_lakehouse.spark.comparing import is_same
from pulsar_lakehouse.tables.lake import Lake, Pinned
from pulsar_lakehouse.tables.reading import rows_of_keys
from pulsar_lakehouse.tables.stored import ANYWHERE, Ranges, ends_of

CURRENT = "_current"
"""The column with a fact's present row in gold as a struct, or NULL."""
MISSING, EXPIRED = "missing", "expired"
"""Why a fact has no partner: none has come yet, or none has come in time."""


def now() -> datetime:
    """The time by which intervals are over: a whole minute, as the batches of a minute then have the same code."""
    return datetime.now(UTC).replace(second=0, microsecond=0)


def with_partners(
    facts: DataFrame, *, lake: Lake, match: Match, event_time: str, source: DataFrame, few: bool
) -> DataFrame:
    """Adds the partners as the column `match.name`, and `no_<name>`: why the fact waits for one, or NULL.

    `source` is the frame that the facts come from, cached, with their positions; `few` says whether these are few.
    If `facts` have CURRENT, the partners in that row stay if the entity has purged them.
    """
    pinned = lake.table(match.table).pin()
    wanted = source.select("position", F.col(event_time).alias("_at"), *_named(match))
    rows = _rows_near(pinned, wanted, match) if few else pinned.rows
    partners = _partners(wanted, rows, match)
    if match.may_be_purged and CURRENT in facts.columns:
        partners = partners.union(_purged(facts, pinned, match))
    found = partners.groupBy("position").agg(_gathered(match).alias(match.name))
    joined = facts.join(F.broadcast(found) if few else found, on="position", how="left")
    return joined.withColumn(f"no_{match.name}", _why_none(match, event_time))


def _named(match: Match) -> list[Column]:
    """The values that a partner must have, named as the entity's columns are."""
    return [value.alias(name) for name, value in zip(match.columns, match.values(), strict=True)]


def _rows_near(pinned: Pinned, wanted: DataFrame, match: Match) -> DataFrame:
    """The rows of the entity that few facts can have as partners."""
    found = wanted.select("_at", *match.columns).toArrow().drop_null()
    keys = found.select(list(match.columns))
    within = _times_of(found["_at"], match)
    near = reduce(
        Column.__and__, (F.col(name).between(*map(F.lit, ends)) for name, ends in within.items()), F.lit(True)
    )
    return rows_of_keys(pinned, keys, within=within, near=near)


def _times_of(times: pa.ChunkedArray, match: Match) -> Ranges:
    """The times that partners of facts with these can have."""
    if not len(times):
        return ANYWHERE
    low, high = match.span
    try:
        first, last = ends_of(times)
        return {match.time: (first + low, last + high)}
    except (OverflowError, ValueError):  # Python has no dates of all years
        return ANYWHERE


def _partners(wanted: DataFrame, rows: DataFrame, match: Match) -> DataFrame:
    """Pairs of a fact's `position` and a row, with its `_order` among the partners of the fact."""
    low, high = (F.lit(end) for end in match.span)
    states = rows.where(_is_usable()).select(
        *(F.col(name).alias(f"_{name}") for name in match.columns),
        F.col(match.time).alias("_time"),
        _order(F.struct(*rows.columns), match).alias("_order"),
        F.struct(*rows.columns).alias("_row"),
    )
    is_equal = (F.col(name) == F.col(f"_{name}") for name in match.columns)
    is_near = F.col("_time").between(F.col("_at") + low, F.col("_at") + high)
    return wanted.join(states, on=reduce(Column.__and__, is_equal, is_near)).select("position", "_order", "_row")


def _is_usable() -> Column:
    """Whether a row was not deleted when it was last changed. A later time of its delete is how long it is kept."""
    return F.coalesce(F.col("deleted_at") > F.col("sequence.event_time"), F.lit(True))


def _order(row: Column, match: Match) -> Column:
    return F.struct(row[match.time].alias("time"), *(row[name].alias(f"key_{name}") for name in match.entity.keys))


def _gathered(match: Match) -> Column:
    """Aggregates the partners of a fact."""
    if match.each == "first":
        return F.min_by("_row", "_order")
    pairs = F.collect_list(F.struct("_order", "_row"))
    in_order = F.array_sort(pairs, lambda a, b: F.when(a["_order"] < b["_order"], -1).otherwise(1))
    return F.transform(in_order, lambda each: each["_row"])


def _purged(facts: DataFrame, pinned: Pinned, match: Match) -> DataFrame:
    """The partners that facts have in gold, but whose keys the entity has no more, as they were purged in time.

    A partner that was deleted before was so when its copy in gold had not expired.
    """
    row = F.struct(*(F.col("_held")[name].alias(name) for name in pinned.schema.names)).alias("_row")
    held = facts.select("position", F.explode(match.rows_of(F.col(CURRENT)[match.name])).alias("_held"))
    held = held.select("position", row).withColumn("_key", match.key_of(F.col("_row")))
    held = held.where(match.entity.is_expired(F.col("_row.deleted_at"), F.col("_row.sequence.publish_time")))
    kept = pinned.rows.select(key_text([F.col(name) for name in match.entity.keys]).alias("_key"))
    gone = held.join(kept, on="_key", how="left_anti")
    return gone.select("position", _order(F.col("_row"), match).alias("_order"), "_row")


def _why_none(match: Match, event_time: str) -> Column:
    """Why the fact waits for a partner, or NULL.

    It does not if it has one, or names none, or if it need not have one and none comes any more.
    """
    waits = F.col(match.name).isNull() & match.own_key.isNotNull()
    over = F.when(F.lit(match.required), EXPIRED)
    return F.when(waits, F.when(is_over(match, event_time), over).otherwise(MISSING))


def is_over(match: Match, event_time: str) -> Column:
    """Whether the interval of a fact, and the time for which a partner may be late, have passed."""
    return F.col(event_time) < F.lit(now() - match.wait)


def is_overdue(matches: Sequence[Match], event_time: str) -> Column:
    """Of a waiting fact: whether the interval of a partner that it waits for is over."""

    def is_missing(match: Match) -> Column:
        return F.exists("missing", lambda state: (state["entity"] == match.awaited) & (state["reason"] == MISSING))

    overdue = (is_over(each, event_time) & is_missing(each) for each in matches)
    return F.coalesce(reduce(Column.__or__, overdue, F.lit(False)), F.lit(False))


def needed(match: Match) -> Column:
    """An element of `missing`."""
    nothing = F.lit(None)
    return F.struct(
        F.lit(match.awaited).alias("entity"),
        match.own_key.alias("key"),
        F.col(f"no_{match.name}").alias("reason"),
        nothing.alias("merged"),
        nothing.alias("via"),
    )


def moves_of(feed: DataFrame, *, match: Match) -> DataFrame:
    """The values that rows of the entity have now, or had before a change, and the times of the facts they concern.

    A row that was removed concerns none: it was deleted before.
    """
    low, high = (F.lit(end) for end in match.span)
    time, just_after = F.col(match.time), F.lit(timedelta(microseconds=1))
    is_before = F.col("_change_type") == "update_preimage"
    moved = feed.where(F.col("_change_type") != "delete").select(
        F.lit(match.awaited).alias("changed_entity"),
        key_text([F.col(name) for name in match.columns]).alias("changed_key"),
        (time - high).alias("valid_from"),
        (time - low + just_after).alias("valid_until"),
        F.col("sequence.publish_time").alias("changed_at"),
        F.lit(None).cast(LOSS).alias("loss"),
        is_before.alias("is_before"),
        F.col("_commit_version").alias("changed_in"),
    )
    return moved.where("changed_key IS NOT NULL AND valid_from IS NOT NULL")


def is_matched_as(due: Column, present: Column, match: Match) -> Column:
    """Whether a fact has the same partners as in gold, by their versions, and by their values if these can be older."""
    old, new = (match.rows_of(partners) for partners in (due, present))
    same = _each(old, "sequence").eqNullSafe(_each(new, "sequence"))
    if match.entity.is_partial:
        kinds: StructType = match.entity.decoding.schema
        for name in match.entity.values:
            same = same & is_same(_each(old, name), _each(new, name), ArrayType(kinds[name].dataType))
    return same


def _each(rows: Column, name: str) -> Column:
    return F.transform(rows, lambda row: row[name])
