"""Plan what a batch reads: what the broker holds at one moment, and the offsets and ranges that follow from it."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from pyspark.sql.datasource import InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxBytes, ReadMaxRows

from .admin import Admin, Held
from .losses import find_loss
from .options import EARLIEST, LATEST, MissingError, Options, PulsarSourceError
from .positions import (
    BEGINNING,
    Ledger,
    Offsets,
    Position,
    Range,
    Span,
    divide,
    entries_within,
    spans_between,
    split,
    topic_of,
)


class RangePartition(InputPartition):
    value: Range


class Plan:
    """What the broker holds at one moment, and the offsets and ranges derived from it."""

    def __init__(self, options: Options, *, dated: bool = False, is_partial: bool = False) -> None:
        """If it `is_partial`, topics of which the broker does not tell are left out, and `left_out` says why."""
        self.options = options
        self.admin = Admin(options)
        self.held: dict[str, Held] = {}
        self.missing: list[str] = []
        """Partitions that the broker has deleted because they were idle, or has not made yet."""
        self.left_out: dict[str, PulsarSourceError] = {}
        for topic in options.topics:
            try:
                self._ask(topic, dated=dated)
            except PulsarSourceError as error:
                if not is_partial:
                    raise
                self.leave_out(topic, error)

    def _ask(self, topic: str, *, dated: bool) -> None:
        ask = self.admin.dated_ledgers if dated else self.admin.ledgers
        for partition in self.admin.partitions(topic):
            try:
                self.held[partition] = ask(partition)
            except MissingError:
                self.missing.append(partition)

    def leave_out(self, topic: str, why: PulsarSourceError) -> None:
        """Plan without one of the topics."""
        self.left_out[topic] = why
        self.options = replace(self.options, topics=tuple(each for each in self.options.topics if each != topic))
        self.held = {name: held for name, held in self.held.items() if self.reads(name)}
        self.missing = [name for name in self.missing if self.reads(name)]

    def reads(self, partition: str) -> bool:
        """Whether a partition is one of the topics, or of them."""
        return partition in self.options.topics or topic_of(partition) in self.options.topics

    def offsets(self, told: Mapping[str, str]) -> Offsets:
        """Offsets that were given as JSON.

        Rows of a topic without partitions have partition 0, so offsets made from rows may name that partition.
        """
        names = {f"{name}-partition-0": name for name in self.held}
        return Offsets({names.get(name, name): position for name, position in Offsets.from_json(told).items()})

    def starting_offsets(self) -> Offsets:
        position = self.options.starting_position
        earliest = {name: Position(held.first, -1) for name, held in self.held.items()}
        beginnings = earliest | {name: BEGINNING for name, held in self.held.items() if held.compacted}
        if position == EARLIEST:
            return Offsets(beginnings)
        if position == LATEST or position.isdigit():
            ends = self.latest_offsets()
            if position != LATEST:
                ends = Offsets(
                    {name: min(self.admin.position_before(name, int(position)), ends[name]) for name in ends}
                )
            return Offsets({name: max(end, earliest[name]) for name, end in ends.items()})
        given = self.offsets(json.loads(position))
        if unknown := sorted(name for name in given.keys() - self.held.keys() if self.reads(name)):
            raise PulsarSourceError(f"startingPosition names {unknown[0]}, which is not a partition of the topic")
        return Offsets(beginnings | given)

    def latest_offsets(self) -> Offsets:
        return Offsets(
            {name: _end(spans_between(held.ledgers, BEGINNING), BEGINNING) for name, held in self.held.items()}
        )

    def limited_offsets(self, start: Offsets, target: Offsets, limit: ReadLimit) -> Offsets:
        """Where a batch after `start` ends: at `target`, or at the limit, which partitions share by size.

        It ends before the oldest open transaction of a partition. Topics that are not read stay where they are.
        Partitions that the broker has deleted since the target was chosen are left out.
        """
        waiting = {
            name: spans_between(self.held[name].ledgers, start.get(name, BEGINNING), self._readable(name, end))
            for name, end in target.items()
            if name in self.held and end > start.get(name, BEGINNING)
        }
        total = sum(span.bytes for spans in waiting.values() for span in spans)
        is_kept = {name: name in self.held or not self.reads(name) for name in start}
        ends = Offsets({name: position for name, position in start.items() if is_kept[name]})
        for name in self._compacted(start):
            ends[name] = Position(self.held[name].first, -1)
        for name, spans in waiting.items():
            share = sum(span.bytes for span in spans) / max(total, 1)
            chosen, _ = divide(spans, entries=self._allowed(name, spans, limit, share))
            ends[name] = _end(chosen, ends.get(name, BEGINNING))
        return ends

    def _compacted(self, start: Offsets) -> list[str]:
        """The partitions that were not read yet, and of whose deleted ledgers compaction may have kept something."""
        return [name for name, held in self.held.items() if held.compacted and start.get(name, BEGINNING) == BEGINNING]

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
        """The ranges between two offsets. Partitions are split into ranges to reach about `minPartitions`.

        Raises PulsarSourceError if messages between them are of a topic that is not read.
        """
        self.refuse_lost_data(start)
        for name, position in end.items():
            if position != start.get(name) and not self.reads(name):
                raise PulsarSourceError(f"{name}: the batch ends at {position}, but option topic does not name it")
        spans = {
            name: found
            for name, position in end.items()
            if name in self.held
            if (found := spans_between(self.held[name].ledgers, start.get(name, BEGINNING), position))
        }
        kept = [self._kept_by_compaction(name) for name in self._compacted(start) if name in end]
        parts = -(-self.options.min_partitions // max(len(spans), 1))
        entries = [
            planned
            for name, found in spans.items()
            for planned in split(name, start.get(name, BEGINNING), found, parts)
        ]
        return [RangePartition(planned) for planned in [*kept, *entries]]

    def _kept_by_compaction(self, partition: str) -> Range:
        held = self.held[partition]
        size = held.compacted or Ledger(0, 1, 1)
        span = Span(held.first - 1, 0, size.entries - 1, size.bytes)
        return Range(partition, BEGINNING, (span,), compacted_before=held.first)

    def refuse_lost_data(self, start: Offsets, created: Mapping[str, str] = MappingProxyType({})) -> None:
        """Raise PulsarSourceError if entries after `start` are, or may be, lost; `created` is as in `find_loss`."""
        if not self.options.fail_on_data_loss:
            return
        for name in (each for each in start | self.held if self.reads(each)):
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
