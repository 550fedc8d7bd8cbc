"""Positions in a topic, the offsets of a stream, and the ranges between them.

A Pulsar partition is a chain of ledgers. A ledger is a list of entries. An entry is one message, one batch of messages,
or one chunk of a large message. An offset is the last entry that was read, so a range never splits a batch.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Self


class Position(NamedTuple):
    ledger: int
    entry: int

    @classmethod
    def parse(cls, text: str) -> Self:
        ledger, _, entry = text.partition(":")
        return cls(int(ledger), int(entry))

    def __str__(self) -> str:
        return f"{self.ledger}:{self.entry}"


BEGINNING = Position(-1, -1)
"""Before the first entry of any partition."""
AFTER_ALL = Position(2**63 - 1, 0)


def topic_of(partition: str) -> str:
    """The topic of a partition, by its full name; of a topic without partitions, the topic itself."""
    topic, _, index = partition.rpartition("-partition-")
    return topic if topic and index.isdigit() else partition


class Offsets(dict[str, Position]):
    """The last entry read of each partition, by its full name."""

    @classmethod
    def from_json(cls, offsets: Mapping[str, str]) -> Self:
        return cls({partition: Position.parse(text) for partition, text in offsets.items()})

    def to_json(self) -> dict[str, str]:
        return {partition: str(self[partition]) for partition in sorted(self)}


@dataclass(frozen=True)
class Ledger:
    id: int
    entries: int
    bytes: int


@dataclass(frozen=True)
class Span:
    """The entries of one ledger from `first` to `last`, both included, and their approximate size in bytes."""

    ledger: int
    first: int
    last: int
    bytes: int

    @property
    def entries(self) -> int:
        return self.last - self.first + 1

    def cut(self, entries: int) -> "tuple[Span, Span]":
        """The first `entries` entries, and the rest."""
        head = round(self.bytes * entries / self.entries)
        middle = self.first + entries
        return Span(self.ledger, self.first, middle - 1, head), Span(self.ledger, middle, self.last, self.bytes - head)


@dataclass(frozen=True)
class Range:
    """What one task reads: the entries of `spans`. The first one follows `start`."""

    partition: str
    start: Position
    spans: tuple[Span, ...]
    compacted_before: int | None = None
    """If it is set, the task reads instead what compaction has kept of the ledgers before this one, which are gone. The
    only span then has about its size."""

    @property
    def end(self) -> Position:
        """The last entry of the range."""
        return Position(self.spans[-1].ledger, self.spans[-1].last)

    def __str__(self) -> str:
        return f"{self.partition} after {self.start} up to {self.end}"


def spans_between(ledgers: Iterable[Ledger], start: Position, end: Position | None = None) -> list[Span]:
    """The entries after `start` up to `end`, included: one span for each ledger, oldest first."""
    spans = []
    for ledger in ledgers:
        first = start.entry + 1 if ledger.id == start.ledger else 0
        last = ledger.entries - 1
        if end and ledger.id == end.ledger:
            last = min(last, end.entry)
        if ledger.id < start.ledger or (end and ledger.id > end.ledger) or first > last:
            continue
        size = round(ledger.bytes * (last - first + 1) / ledger.entries)
        spans.append(Span(ledger.id, first, last, size))
    return spans


def between(spans: Iterable[Span], after: Position, before: Position = AFTER_ALL) -> Iterator[Position]:
    """The entries of `spans` between two positions, both excluded."""
    for span in spans:
        if after.ledger <= span.ledger <= before.ledger:
            first = max(span.first, after.entry + 1) if span.ledger == after.ledger else span.first
            last = min(span.last, before.entry - 1) if span.ledger == before.ledger else span.last
            for entry in range(first, last + 1):
                yield Position(span.ledger, entry)


def backwards(spans: Sequence[Span], after: Position = BEGINNING) -> Iterator[Position]:
    """The entries of `spans` after a position, newest first."""
    for span in reversed(spans):
        for entry in range(span.last, span.first - 1, -1):
            if (position := Position(span.ledger, entry)) <= after:
                return
            yield position


def divide(spans: Iterable[Span], *, entries: int) -> tuple[list[Span], list[Span]]:
    """The first `entries` entries, and the rest."""
    first, rest = [], []
    for span in spans:
        if entries <= 0:
            rest.append(span)
        elif entries >= span.entries:
            first.append(span)
        else:
            head, tail = span.cut(entries)
            first.append(head)
            rest.append(tail)
        entries -= span.entries
    return first, rest


def entries_within(spans: Sequence[Span], limit: int) -> int:
    """How many entries fit into `limit` bytes: at least one, so that a large entry can't stop a stream."""
    entries = 0
    for span in spans:
        if span.bytes > limit:
            return max(1, entries + limit * span.entries // span.bytes)
        entries += span.entries
        limit -= span.bytes
    return entries


def split(partition: str, start: Position, spans: Sequence[Span], parts: int) -> list[Range]:
    """At most `parts` ranges of similar size in bytes. Together they cover `spans` exactly."""
    ranges, rest = [], list(spans)
    for left in range(parts, 0, -1):
        if not rest:
            break
        size = sum(span.bytes for span in rest)
        entries = sum(span.entries for span in rest) if left == 1 else entries_within(rest, -(-size // left))
        chosen, rest = divide(rest, entries=entries)
        ranges.append(Range(partition, start, tuple(chosen)))
        start = ranges[-1].end
    return ranges
