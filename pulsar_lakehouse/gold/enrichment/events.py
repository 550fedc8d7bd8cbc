"""The rows of an enrichment batch. Each row is one event, and its column `_event` names the kind."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

from pyspark.sql import Column, DataFrame, Row
from pyspark.sql import functions as F
from pyspark.sql.types import DateType, TimestampType

from pulsar_lakehouse.gold.enrichment.declaration import Enrichment
from pulsar_lakehouse.tables.lake import Lake, Pinned
from pulsar_lakehouse.tables.stored import Ranges

VALID = ("valid_from", "valid_until")
EVENT = "_event"
FACT = "fact"
"""A new fact, with its position and publish time."""
REJECTED = "rejected"
"""A rejected message, with the reason."""
CHANGE = "change"
"""A change of state that a lookup uses. `gold.enrichment.changes` makes its columns."""
LOSS = "STRUCT<deleted_at: TIMESTAMP, merged_into: STRING>"
CHANGE_COLUMNS = {
    "changed_entity": "STRING",
    "changed_key": "STRING",
    "valid_from": "TIMESTAMP",
    "valid_until": "TIMESTAMP",
    "changed_at": "TIMESTAMP",
    "loss": LOSS,
    "is_before": "BOOLEAN",
    "changed_in": "BIGINT",
}
"""The columns of changes and their types. `changed_in` is the version of the table that has the change."""
RELEASE, DISCARD = "release", "discard"
"""Requests for the waiting fact at a position. The same names are the actions in `quarantine.actions`."""
EXPIRE = "expire"
"""The request, in the same table, to decide about the waiting facts whose time to find a partner has passed."""
BACKFILL = "backfill"
"""A request to recompute facts."""
BACKFILL_COLUMN = "STRUCT<request: STRING, since: DATE, until: DATE, entity: STRING, key: STRING>"


def is_event(kind: str) -> Column:
    return F.col(EVENT) == kind


def as_events(decoded: DataFrame, enrichment: Enrichment) -> DataFrame:
    """Decoded messages as events. Only rejected ones keep the message itself."""
    is_rejected = F.col("reason").isNotNull()
    return decoded.select(
        F.when(is_rejected, REJECTED).otherwise(FACT).alias(EVENT),
        *enrichment.columns,
        enrichment.day,
        "message.position",
        "message.publish_time",
        F.when(is_rejected, F.col("message")).alias("message"),
        "reason",
    )


def facts_among(events: DataFrame, enrichment: Enrichment) -> DataFrame:
    return events.where(is_event(FACT)).select(*enrichment.columns, enrichment.day, "position", "publish_time")


def without_changes(events: DataFrame) -> DataFrame:
    """Adds the columns of changes of state, which are NULL, so that a batch has them though no lookup makes them."""
    return events.select("*", *(F.lit(None).cast(kind).alias(name) for name, kind in CHANGE_COLUMNS.items()))


@dataclass(frozen=True, kw_only=True)
class Summary:
    """How many events of each kind a batch has, so that work for absent kinds can be skipped."""

    events: int
    facts: int = 0
    bounds: Ranges = field(default_factory=dict)
    """The lowest and highest day and keys of the facts; times and dates are text."""
    rejected: int = 0
    rejected_since: int | None = None
    """The lowest ledger of the rejected messages."""
    changed: Collection[str] = ()
    """The entities that have changes."""
    changed_versions: Collection[str] = ()
    """Those of them that have new versions in their history."""
    lost: Collection[str] = ()
    """Those of them that have keys which were deleted or merged, or are no more."""
    released: int = 0
    discarded: int = 0
    expired: int = 0
    backfills: Sequence[Row] = ()


def summary_of(events: DataFrame, enrichment: Enrichment) -> Summary:
    def among(kind: str, value: Column) -> Column:
        return F.when(is_event(kind), value)

    changed = among(CHANGE, F.col("changed_entity"))
    [row] = events.agg(
        F.count("*").alias("events"),
        F.count_if(is_event(FACT)).alias("facts"),
        bounds(events, enrichment, is_event(FACT)).alias("bounds"),
        F.count_if(is_event(REJECTED)).alias("rejected"),
        F.min(among(REJECTED, F.col("position.ledger_id"))).alias("rejected_since"),
        F.collect_set(changed).alias("changed"),
        F.collect_set(F.when(F.col(VALID[0]).isNotNull(), changed)).alias("changed_versions"),
        F.collect_set(F.when(F.col("loss").isNotNull(), changed)).alias("lost"),
        F.count_if(is_event(RELEASE)).alias("released"),
        F.count_if(is_event(DISCARD)).alias("discarded"),
        F.count_if(is_event(EXPIRE)).alias("expired"),
        F.collect_list(among(BACKFILL, F.col("backfill"))).alias("backfills"),
    ).collect()
    return Summary(**row.asDict())


def bounded(enrichment: Enrichment) -> tuple[str, ...]:
    """The columns whose lowest and highest values bound where facts with the same keys can be."""
    return (enrichment.day, *enrichment.keys)


def bounds(rows: DataFrame, enrichment: Enrichment, which: Column) -> Column:
    """Aggregates the lowest and highest values of the `bounded` columns where `which` is TRUE; all NULL if nowhere.

    Times and dates are text: Python would take times to the time zone of this machine, and has no dates of all years.
    """

    def ends(name: str) -> Column:
        value, is_time = F.when(which, F.col(name)), isinstance(rows.schema[name].dataType, TimestampType | DateType)
        low, high = (end.cast("string") if is_time else end for end in (F.min(value), F.max(value)))
        return F.struct(low.alias("low"), high.alias("high")).alias(name)

    return F.struct(*(ends(name) for name in bounded(enrichment)))


class Placed(NamedTuple):
    """The facts in gold and the waiting ones at some moment."""

    gold: Pinned
    waiting: Pinned


@dataclass(frozen=True, kw_only=True)
class Batch:
    """The cached events of a batch, and what is known of them."""

    lake: Lake
    enrichment: Enrichment
    events: DataFrame
    summary: Summary
    is_new: bool = False
    """Whether no message of the batch can have been placed before, so that none has to be searched for."""
    is_first: bool = False
    """Whether it is the first batch of its stream. Its changes are the current state, and don't show which merges were
    undone before."""

    @cached_property
    def placed(self) -> Placed:
        """The facts that are placed when this is asked for the first time."""
        gold, waiting = (self.lake.table(name) for name in (self.enrichment.gold_table, self.enrichment.waiting.name))
        return Placed(gold=gold.pin(), waiting=waiting.pin())
