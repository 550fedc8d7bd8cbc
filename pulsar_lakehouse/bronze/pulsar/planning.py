"""Plan what a batch reads: what the broker holds at one moment, and the offsets and ranges that follow from it."""

import json
from collections.abc import Mapping, Sequence
from types import MappingProxyType

from pyspark.sql.datasource import InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxBytes, ReadMaxRows

from .admin import Admin
from .losses import find_loss
from .options import EARLIEST, LATEST, Options, PulsarSourceError
from .positions import (
    BEGINNING,
    Offsets,
    Position,
    Range,
    Span,
    divide,
    entries_within,
    spans_between,
    split,
)


class RangePartition(InputPartition):
    value: Range


class Plan:
    """What the broker holds at one moment, and the offsets and ranges derived from it."""

    def __init__(self, options: Options, *, dated: bool = False) -> None:
        self.options = options
        self.admin = Admin(options)
        held = self.admin.dated_ledgers if dated else self.admin.ledgers
        self.held = {
            partition: held(partition) for topic in options.topics for partition in self.admin.partitions(topic)
        }

    def starting_offsets(self) -> Offsets:
        position = self.options.starting_position
        earliest = {name: Position(held.first, -1) for name, held in self.held.items()}
        if position == EARLIEST:
            return Offsets(earliest)
        if position == LATEST or position.isdigit():
            ends = self.latest_offsets()
            if position != LATEST:
                ends = Offsets(
                    {name: min(self.admin.position_before(name, int(position)), ends[name]) for name in ends}
                )
            return Offsets({name: max(end, earliest[name]) for name, end in ends.items()})
        given = Offsets.from_json(json.loads(position))
        # Rows of a topic without partitions have partition 0, so offsets made from rows may name that partition.
        names = {f"{name}-partition-0": name for name in self.held} | {name: name for name in self.held}
        unknown = sorted(given.keys() - names.keys())
        if unknown:
            raise PulsarSourceError(f"startingPosition names {unknown[0]}, which is not a partition of the topic")
        return Offsets(earliest | {names[name]: given[name] for name in given})

    def latest_offsets(self) -> Offsets:
        return Offsets(
            {name: _end(spans_between(held.ledgers, BEGINNING), BEGINNING) for name, held in self.held.items()}
        )

    def limited_offsets(self, start: Offsets, target: Offsets, limit: ReadLimit) -> Offsets:
        """Where a batch after `start` ends: at `target`, or at the limit, which partitions share by size.

        It ends before the oldest open transaction of a partition.
        """
        waiting = {
            name: spans_between(self.held[name].ledgers, start.get(name, BEGINNING), self._readable(name, end))
            for name, end in target.items()
            if end > start.get(name, BEGINNING)
        }
        total = sum(span.bytes for spans in waiting.values() for span in spans)
        ends = Offsets({name: position for name, position in start.items() if name in self.held})
        for name, spans in waiting.items():
            share = sum(span.bytes for span in spans) / max(total, 1)
            chosen, _ = divide(spans, entries=self._allowed(name, spans, limit, share))
            ends[name] = _end(chosen, start.get(name, BEGINNING))
        return ends

    def _readable(self, partition: str, end: Position) -> Position:
        return min(end, self.admin.readable_end(partition) or end)

    def _allowed(self, partition: str, spans: Sequence[Span], limit: ReadLimit, share: float) -> int:
        """The entries that a partition's share of the limit allows. A limit in rows uses the next entry's size."""
        if isinstance(limit, ReadMaxBytes):
            return entries_within(spans, round(limit.max_bytes * share))
        if isinstance(limit, ReadMaxRows) and spans:
            entry = self.admin.entry(partition, Position(spans[0].ledger, spans[0].first))
            return max(1, round(limit.max_rows * share / (entry.messages if entry else 1)))
        return sum(span.entries for span in spans)

    def ranges(self, start: Offsets, end: Offsets) -> list[RangePartition]:
        """The ranges between two offsets. Partitions are split into ranges to reach about `minPartitions`."""
        self.refuse_lost_data(start)
        spans = {
            name: found
            for name, position in end.items()
            if name in self.held
            if (found := spans_between(self.held[name].ledgers, start.get(name, BEGINNING), position))
        }
        parts = -(-self.options.min_partitions // max(len(spans), 1))
        return [
            RangePartition(planned)
            for name, found in spans.items()
            for planned in split(name, start.get(name, BEGINNING), found, parts)
        ]

    def refuse_lost_data(self, start: Offsets, created: Mapping[str, str] = MappingProxyType({})) -> None:
        """Raise PulsarSourceError if entries after `start` are, or may be, lost; `created` is as in `find_loss`."""
        if not self.options.fail_on_data_loss:
            return
        for name in start | self.held:
            after = start.get(name, BEGINNING)
            loss = find_loss(name, after, self.held.get(name), self.options.subscription, created.get(name))
            if loss and loss.can_resume:
                raise PulsarSourceError(f"{loss}; failOnDataLoss=false goes on")
            if loss:
                raise PulsarSourceError(
                    f"{loss}. Start again with a new checkpoint and table, or set failOnDataLoss=false to skip older "
                    "entries"
                )


def _end(spans: Sequence[Span], otherwise: Position) -> Position:
    return Position(spans[-1].ledger, spans[-1].last) if spans else otherwise
