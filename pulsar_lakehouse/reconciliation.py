"""Reconciliation shows that nothing was lost: the messages that landed equal the messages that the tables hold."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pyspark.sql import Column
from pyspark.sql import functions as F

OTHER = "other"
"""Messages that are of no kind."""


@dataclass(frozen=True, kw_only=True)
class Reconciliation:
    """How many messages of a topic landed, and where they are: `accounted` maps a status to a number of messages.

    `problems` are one line each.
    """

    topic: str
    landed: int
    rows: int | None = None
    """Their rows, if a message can have many: then `accounted` has rows. A malformed message counts as one."""
    empty: int = 0
    """The landed messages that have no row."""
    accounted: Mapping[str, int]
    problems: tuple[str, ...] = ()
    compacted: int = 0
    """The landed messages that compaction had kept, after the broker had deleted others of their keys."""
    snapshot: int | None = None
    """The rows of the last snapshot of a source, if they were compared with those that have landed."""

    @property
    def arrived(self) -> str:
        """How many landed, with how many rows, and which of them compaction had kept."""
        notes = [f"{self.compacted:,} kept by compaction"] if self.compacted else []
        if self.rows is None:
            return f"{self.landed:,}{_in_brackets(notes)}"
        notes += [f"{self.empty:,} without rows"] if self.empty else []
        return f"{self.rows:,} rows of {self.landed:,} messages{_in_brackets(notes)}"

    @property
    def difference(self) -> int:
        """Landed messages, or rows, minus accounted ones. 0 alone is no proof: a lost and a double one cancel out."""
        return (self.landed if self.rows is None else self.rows) - sum(self.accounted.values())

    @property
    def holds(self) -> bool:
        return self.difference == 0 and not self.problems

    def __str__(self) -> str:
        """One line with the topic's equation and its problems."""
        accounted = " + ".join(f"{count:,} {status}" for status, count in self.accounted.items())
        equation = f"{self.topic}: {self.arrived} landed {'=' if self.holds else '≠'} {accounted}"
        return "; ".join((equation, *self.problems))

    @property
    def other(self) -> int:
        """How many messages are of no kind, if the topic has several."""
        return self.accounted.get(OTHER, 0)

    @property
    def of_snapshot(self) -> str:
        """What is known of the last snapshot of a source; empty for a topic."""
        return (
            "" if self.snapshot is None else f"{self.topic}: the last snapshot of its source has {self.snapshot:,} rows"
        )


def _in_brackets(notes: Sequence[str]) -> str:
    return f" ({', '.join(notes)})" if notes else ""


def fingerprint(values: Column) -> Column:
    """Aggregates values to a sum of hashes, in which their order and grouping do not count; NULL counts nothing."""
    hashed = F.when(values.isNotNull(), F.pmod(F.xxhash64(values), F.lit(2**31 - 1)))
    return F.coalesce(F.sum(hashed), F.lit(0))
