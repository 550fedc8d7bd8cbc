"""Truncations of a table that is replicated: each deletes all keys of which there is an older version.

In the history, a truncation is a version without a key. Versions end with it, whenever they arrive.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime

from pyspark.sql import Column, DataFrame, Row
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, DataType, NullType, StructType

from pulsar_lakehouse.silver.entity import Entity
from pulsar_lakehouse.tables.lake import Lake
from pulsar_lakehouse.tables.reading import rows_with_null

KNOWN = "_truncations"


@dataclass(frozen=True)
class Truncations:
    known: tuple[Row, ...] = ()
    """The sequences of all of them."""
    new: tuple[Row, ...] = ()
    """Those that came with this batch."""
    stored: tuple[Row, ...] = ()
    """Those in the history. It has new ones if their batch runs again, or if the checkpoint was lost."""
    type: DataType = field(default_factory=NullType)

    @property
    def are_new(self) -> bool:
        return bool(self.new)

    @property
    def since(self) -> datetime:
        """The earliest time of the new ones."""
        since: datetime = min(each["event_time"] for each in self.new)
        return since

    def beside(self, versions: DataFrame) -> DataFrame:
        """The versions, each with all sequences."""
        return self._with(versions, self.known) if self.known else versions

    def without_stored(self, changes: DataFrame) -> DataFrame:
        """The changes without truncations that the history has: an upsert does not find a row without a key."""
        if not set(self.new) & set(self.stored):
            return changes
        return self._with(changes, self.stored).where(~F.array_contains(KNOWN, F.col("sequence"))).drop(KNOWN)

    def _with(self, rows: DataFrame, sequences: Sequence[Row]) -> DataFrame:
        kind = StructType().add(KNOWN, ArrayType(self.type))
        return rows.crossJoin(F.broadcast(rows.sparkSession.createDataFrame([([*sequences],)], kind)))

    def time_after(self, sequence: str) -> Column:
        """The earliest time of those that follow a version; NULL if none does."""
        after = F.filter(KNOWN, lambda each: each > F.col(sequence))
        return F.array_min(F.transform(after, lambda each: each["event_time"]))

    def number_before(self, sequence: str) -> Column:
        return F.size(F.filter(KNOWN, lambda each: each < F.col(sequence)))


NONE = Truncations()


def is_truncation(entity: Entity) -> Column:
    """Over a change or a version."""
    return F.col(entity.keys[0]).isNull()


def truncations_of(lake: Lake, changes: DataFrame, entity: Entity, *, truncates: bool) -> Truncations:
    """Those in the history and, if the batch `truncates`, those among its changes."""
    if not entity.topic.envelope:
        return NONE
    history = lake.table(entity.history.name).pin()
    stored = _sequences(rows_with_null(history, entity.keys[0], columns=[*entity.keys, "sequence"]))
    new = _sequences(changes.where(is_truncation(entity))) if truncates else ()
    known = tuple(dict.fromkeys((*stored, *new)))
    return Truncations(known, new, stored, changes.schema["sequence"].dataType)


def state_of(entity: Entity, columns: Sequence[str]) -> list[Column]:
    """The columns of the state that a version leaves: only a key, if a truncation deletes it."""
    truncated_at, deleted_at = F.col("_truncated_at"), F.col("deleted_at")
    is_emptied = truncated_at.isNotNull() & (deleted_at.isNull() | (deleted_at > truncated_at))
    own = {name: F.col(name) for name in columns}
    emptied = {name: F.lit(None) for name in columns} | {"deleted_at": truncated_at}
    emptied |= {name: own[name] for name in (*entity.keys, "sequence")}
    return [F.when(is_emptied, emptied[name]).otherwise(own[name]).alias(name) for name in columns]


def _sequences(rows: DataFrame) -> tuple[Row, ...]:
    return tuple(row.sequence for row in rows.select("sequence").collect())
