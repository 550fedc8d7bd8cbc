"""The data source itself: what Spark calls to plan, read and commit."""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

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
from bronze.pulsar.options import EARLIEST, LATEST, Options, PulsarSourceError
from bronze.pulsar.positions import (
    BEGINNING,
    Ledger,
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
"""One row a message. (topic, partition, ledger_id, entry_id, batch_index) is unique. A NULL payload is a tombstone."""


class PulsarDataSource(DataSource):
    """`format("pulsar")`; options and guarantees are in README.md beside this file."""

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
    """Reads from the starting position to what is the end when the query is planned."""

    def __init__(self, options: Options) -> None:
        self._options = options

    def partitions(self) -> Sequence[InputPartition]:
        plan = _Plan(self._options)
        return plan.ranges(plan.starting_offsets(), plan.latest_offsets())

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if partition.value is None:  # Spark's own, where there are none
            return iter(())
        return _read(self._options, partition)


class PulsarStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    def __init__(self, options: Options) -> None:
        self._options = options
        self._target: Offsets | None = None
        self._subscribed: set[str] = set()
        self._acknowledged = Offsets()

    def initialOffset(self) -> dict[str, str]:
        plan = _Plan(self._options)
        start = plan.starting_offsets()
        plan.refuse_lost_data(start)
        self._subscribe(plan)
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
        plan = _Plan(self._options)
        after = Offsets.from_json(start)
        plan.refuse_lost_data(after)
        self._subscribe(plan)
        # Spark itself commits a batch later, and never the last one.
        self.commit({name: start[name] for name in start.keys() & plan.ledgers.keys()})
        return plan.limited_offsets(after, self._target or plan.latest_offsets(), limit).to_json()

    def reportLatestOffset(self) -> dict[str, str]:
        return _Plan(self._options).latest_offsets().to_json()

    def partitions(self, start: dict[str, str], end: dict[str, str]) -> Sequence[InputPartition]:
        return _Plan(self._options).ranges(Offsets.from_json(start), Offsets.from_json(end))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return _read(self._options, partition)

    def commit(self, end: dict[str, str]) -> None:
        if self._options.subscription:
            admin = Admin(self._options)
            for partition, position in Offsets.from_json(end).items():
                if position not in (BEGINNING, self._acknowledged.get(partition)):
                    admin.acknowledge(partition, self._options.subscription, position)
                    self._acknowledged[partition] = position

    def _subscribe(self, plan: "_Plan") -> None:
        if self._options.subscription:
            for partition in plan.ledgers.keys() - self._subscribed:
                plan.admin.ensure_subscription(partition, self._options.subscription)
                self._subscribed.add(partition)


def _read(options: Options, partition: InputPartition) -> Iterator[pa.RecordBatch]:
    # Here, as most processes that Spark starts for a source only plan, and have no use for Pulsar's client.
    from bronze.pulsar.reading import read_range

    return read_range(options, cast(RangePartition, partition).value)


class _Plan:
    """What the broker holds at one moment, and the offsets and ranges that follow from it."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self.admin = Admin(options)
        self.ledgers: dict[str, list[Ledger]] = {}
        self._cursors: dict[str, Mapping[str, Any]] = {}
        self._last: dict[str, Position] = {}
        for topic in options.topics:
            for partition in self.admin.partitions(topic):
                held = self.admin.ledgers(partition)
                self.ledgers[partition], self._cursors[partition], self._last[partition] = held

    def starting_offsets(self) -> Offsets:
        position = self._options.starting_position
        if position == EARLIEST:
            return Offsets(dict.fromkeys(self.ledgers, BEGINNING))
        if position == LATEST:
            return self.latest_offsets()
        if position.isdigit():
            latest = self.latest_offsets()
            return Offsets(
                {name: min(self.admin.position_before(name, int(position)), end) for name, end in latest.items()}
            )
        given = Offsets.from_json(json.loads(position))
        # The rows of a topic without partitions have partition 0, so offsets made from them may say so too.
        names = {f"{name}-partition-0": name for name in self.ledgers} | {name: name for name in self.ledgers}
        unknown = sorted(given.keys() - names.keys())
        if unknown:
            raise PulsarSourceError(f"startingPosition names {unknown[0]}, which is no partition of the topic")
        return Offsets(dict.fromkeys(self.ledgers, BEGINNING) | {names[name]: given[name] for name in given})

    def latest_offsets(self) -> Offsets:
        return Offsets({name: _end(spans_between(held, BEGINNING), BEGINNING) for name, held in self.ledgers.items()})

    def limited_offsets(self, start: Offsets, target: Offsets, limit: ReadLimit) -> Offsets:
        """Where a batch after `start` ends: at `target`, or where the limit, shared by size, is reached."""
        waiting = {
            name: spans_between(self.ledgers[name], start.get(name, BEGINNING), end)
            for name, end in target.items()
            if end > start.get(name, BEGINNING)
        }
        total = sum(span.bytes for spans in waiting.values() for span in spans)
        ends = Offsets({name: position for name, position in start.items() if name in self.ledgers})
        for name, spans in waiting.items():
            share = sum(span.bytes for span in spans) / max(total, 1)
            chosen = take(spans, entries=self._allowed(name, spans, limit, share))
            ends[name] = _end(chosen, start.get(name, BEGINNING))
        return ends

    def _allowed(self, partition: str, spans: Sequence[Span], limit: ReadLimit, share: float) -> int:
        """Entries that a partition's share of the limit allows; a limit in rows goes by the next entry's batch."""
        if isinstance(limit, ReadMaxBytes):
            return entries_within(spans, round(limit.max_bytes * share))
        if isinstance(limit, ReadMaxRows) and spans:
            entry = self.admin.entry(partition, Position(spans[0].ledger, spans[0].first))
            return max(1, round(limit.max_rows * share / (entry.messages if entry else 1)))
        return sum(span.entries for span in spans)

    def ranges(self, start: Offsets, end: Offsets) -> list[RangePartition]:
        """The ranges between two offsets, long partitions split so that there are `minPartitions` of them."""
        self.refuse_lost_data(start)
        spans = {
            name: found
            for name, position in end.items()
            if (found := spans_between(self.ledgers.get(name, ()), start.get(name, BEGINNING), position))
        }
        parts = -(-self._options.min_partitions // max(len(spans), 1))
        return [
            RangePartition(planned)
            for name, found in spans.items()
            for planned in split(name, start.get(name, BEGINNING), found, parts)
        ]

    def refuse_lost_data(self, start: Offsets) -> None:
        """Fail if the broker may have deleted what comes after `start`: its ledger is gone, and so is our cursor.

        Fail as well if the broker has never come as far: the topic was made anew, and what is in it would be skipped.
        """
        if not self._options.fail_on_data_loss:
            return
        for name, position in start.items():
            if name in self._last and position > self._last[name]:
                raise PulsarSourceError(
                    f"{name}: the last entry read is {position}, but the broker has come no further than "
                    f"{self._last[name]}: the topic was made anew. Begin again with a new checkpoint and table, or "
                    "failOnDataLoss=false skips what is older"
                )
            held = self.ledgers.get(name, [])
            gone = position != BEGINNING and all(ledger.id != position.ledger for ledger in held)
            if gone and self._options.subscription not in self._cursors.get(name, {}):
                begin = f"now begins with {held[0].id}:0" if held else "now holds nothing"
                raise PulsarSourceError(
                    f"{name}: the broker no longer has the ledger of {position}, the last entry read; the partition "
                    f"{begin}. Messages between may be lost; failOnDataLoss=false goes on"
                )


def _end(spans: Sequence[Span], otherwise: Position) -> Position:
    return Position(spans[-1].ledger, spans[-1].last) if spans else otherwise
