"""The data source itself: the methods that Spark calls to plan, read and commit."""

import json
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import cast

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from bronze.pulsar.admin import Admin
from bronze.pulsar.losses import find_loss
from bronze.pulsar.options import EARLIEST, LATEST, Options, PulsarSourceError
from bronze.pulsar.positions import (
    BEGINNING,
    Offsets,
    Position,
    Range,
    Span,
    entries_within,
    spans_between,
    split,
    take,
)

SCHEMA = """
    topic STRING, partition INT, ledger_id BIGINT, entry_id BIGINT, batch_index INT,
    key STRING, payload BINARY, properties MAP<STRING, STRING>,
    event_time TIMESTAMP, publish_time TIMESTAMP, producer STRING, schema_version BIGINT
"""
"""One row per message. (topic, partition, ledger_id, entry_id, batch_index) is unique. NULL payloads are tombstones."""


class PulsarDataSource(DataSource):
    """The source behind `format("pulsar")`. README.md beside this file lists options and guarantees."""

    @classmethod
    def name(cls) -> str:
        return "pulsar"

    def schema(self) -> str:
        return SCHEMA

    def reader(self, schema: StructType) -> DataSourceReader:
        return PulsarReader(Options.parse(self.options))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        return PulsarStreamReader(Options.parse(self.options))


class RangePartition(InputPartition):
    value: Range


class PulsarReader(DataSourceReader):
    """Reads from the starting position to the last message at planning time."""

    def __init__(self, options: Options) -> None:
        self._options = options

    def partitions(self) -> Sequence[InputPartition]:
        plan = _Plan(self._options)
        return plan.ranges(plan.starting_offsets(), plan.latest_offsets())

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if partition.value is None:  # Spark adds this partition itself if there are none
            return iter(())
        return _read(self._options, partition)


class PulsarStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    def __init__(self, options: Options) -> None:
        self._options = options
        self._target: Offsets | None = None
        self._created: dict[str, str] = {}
        """The creation time of each partition when this query first saw it."""

    def initialOffset(self) -> dict[str, str]:
        plan = _Plan(self._options, dated=True)
        start = plan.starting_offsets()
        self._guard(plan, start)
        return start.to_json()

    def prepareForTriggerAvailableNow(self) -> None:
        self._target = _Plan(self._options).latest_offsets()

    def getDefaultReadLimit(self) -> ReadLimit:
        if self._options.max_bytes_per_trigger:
            return ReadMaxBytes(self._options.max_bytes_per_trigger)
        if self._options.max_messages_per_trigger:
            return ReadMaxRows(self._options.max_messages_per_trigger)
        return ReadAllAvailable()

    def latestOffset(self, start: dict[str, str], limit: ReadLimit) -> dict[str, str]:
        plan = _Plan(self._options, dated=True)
        after = Offsets.from_json(start)
        self._guard(plan, after)
        self._acknowledge(plan, after)
        return plan.limited_offsets(after, self._target or plan.latest_offsets(), limit).to_json()

    def reportLatestOffset(self) -> dict[str, str]:
        return _Plan(self._options).latest_offsets().to_json()

    def partitions(self, start: dict[str, str], end: dict[str, str]) -> Sequence[InputPartition]:
        return _Plan(self._options).ranges(Offsets.from_json(start), Offsets.from_json(end))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return _read(self._options, partition)

    def commit(self, end: dict[str, str]) -> None:
        """Does nothing: Spark calls it one batch late, and never for the last batch. `latestOffset` acknowledges."""

    def _acknowledge(self, plan: "_Plan", after: Offsets) -> None:
        """Acknowledge the end of the last batch, for partitions whose subscription is not there yet."""
        subscription = self._options.subscription
        if not subscription:
            return
        for partition, position in after.items():
            held = plan.held.get(partition)
            if held and position.entry >= 0 and position != held.cursor(subscription):
                plan.admin.acknowledge(partition, subscription, position)

    def _guard(self, plan: "_Plan", after: Offsets) -> None:
        """Fail if data is lost, and only then create missing subscriptions: a new subscription would hide losses."""
        plan.refuse_lost_data(after, self._created)
        for partition, held in plan.held.items():
            if held.created:
                self._created.setdefault(partition, held.created)
            if self._options.subscription and held.cursor(self._options.subscription) is None:
                plan.admin.ensure_subscription(partition, self._options.subscription)


def _read(options: Options, partition: InputPartition) -> Iterator[pa.RecordBatch]:
    # Imported here because most processes that Spark starts for a source only plan, without Pulsar's client.
    from bronze.pulsar.reading import read_range

    return read_range(options, cast(RangePartition, partition).value)


class _Plan:
    """What the broker holds at one moment, and the offsets and ranges derived from it."""

    def __init__(self, options: Options, *, dated: bool = False) -> None:
        self._options = options
        self.admin = Admin(options)
        held = self.admin.dated_ledgers if dated else self.admin.ledgers
        self.held = {
            partition: held(partition) for topic in options.topics for partition in self.admin.partitions(topic)
        }

    def starting_offsets(self) -> Offsets:
        position = self._options.starting_position
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
        """Where a batch after `start` ends: at `target`, or at the limit, which partitions share by size."""
        waiting = {
            name: spans_between(self.held[name].ledgers, start.get(name, BEGINNING), end)
            for name, end in target.items()
            if end > start.get(name, BEGINNING)
        }
        total = sum(span.bytes for spans in waiting.values() for span in spans)
        ends = Offsets({name: position for name, position in start.items() if name in self.held})
        for name, spans in waiting.items():
            share = sum(span.bytes for span in spans) / max(total, 1)
            chosen = take(spans, entries=self._allowed(name, spans, limit, share))
            ends[name] = _end(chosen, start.get(name, BEGINNING))
        return ends

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
        parts = -(-self._options.min_partitions // max(len(spans), 1))
        return [
            RangePartition(planned)
            for name, found in spans.items()
            for planned in split(name, start.get(name, BEGINNING), found, parts)
        ]

    def refuse_lost_data(self, start: Offsets, created: Mapping[str, str] = MappingProxyType({})) -> None:
        """Raise PulsarSourceError if entries after `start` are, or may be, lost; `created` is as in `find_loss`."""
        if not self._options.fail_on_data_loss:
            return
        for name in start | self.held:
            after = start.get(name, BEGINNING)
            loss = find_loss(name, after, self.held.get(name), self._options.subscription, created.get(name))
            if loss and loss.can_resume:
                raise PulsarSourceError(f"{loss}; failOnDataLoss=false goes on")
            if loss:
                raise PulsarSourceError(
                    f"{loss}. Start again with a new checkpoint and table, or set failOnDataLoss=false to skip older "
                    "entries"
                )


def _end(spans: Sequence[Span], otherwise: Position) -> Position:
    return Position(spans[-1].ledger, spans[-1].last) if spans else otherwise
