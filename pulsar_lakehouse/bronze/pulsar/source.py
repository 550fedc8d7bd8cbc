"""The data source itself: the methods that Spark calls to plan, read and commit."""

from collections.abc import Iterator, Sequence
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

from .columns import SCHEMA
from .options import Options
from .planning import Plan, RangePartition
from .positions import Offsets
from .subscription import acknowledge, ensure_subscriptions


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


class PulsarReader(DataSourceReader):
    """Reads from the starting position to the last message at planning time."""

    def __init__(self, options: Options) -> None:
        self._options = options

    def partitions(self) -> Sequence[InputPartition]:
        plan = Plan(self._options)
        start = plan.starting_offsets()
        return plan.ranges(start, plan.limited_offsets(start, plan.latest_offsets(), ReadAllAvailable()))

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
        plan = Plan(self._options, dated=True)
        start = plan.starting_offsets()
        self._guard(plan, start)
        return start.to_json()

    def prepareForTriggerAvailableNow(self) -> None:
        self._target = Plan(self._options).latest_offsets()

    def getDefaultReadLimit(self) -> ReadLimit:
        if self._options.max_bytes_per_trigger:
            return ReadMaxBytes(self._options.max_bytes_per_trigger)
        if self._options.max_messages_per_trigger:
            return ReadMaxRows(self._options.max_messages_per_trigger)
        return ReadAllAvailable()

    def latestOffset(self, start: dict[str, str], limit: ReadLimit) -> dict[str, str]:
        plan = Plan(self._options, dated=True)
        after = plan.offsets(start)
        self._guard(plan, after)
        acknowledge(plan, after)  # Spark's own call of `commit` comes one batch late, and never for the last batch
        return plan.limited_offsets(after, self._target or plan.latest_offsets(), limit).to_json()

    def reportLatestOffset(self) -> dict[str, str]:
        return Plan(self._options).latest_offsets().to_json()

    def partitions(self, start: dict[str, str], end: dict[str, str]) -> Sequence[InputPartition]:
        plan = Plan(self._options)
        return plan.ranges(plan.offsets(start), plan.offsets(end))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return _read(self._options, partition)

    def _guard(self, plan: Plan, after: Offsets) -> None:
        plan.refuse_lost_data(after, self._created)
        ensure_subscriptions(plan)
        for partition, held in plan.held.items():
            if held.created:
                self._created.setdefault(partition, held.created)


def _read(options: Options, partition: InputPartition) -> Iterator[pa.RecordBatch]:
    # Imported here because most processes that Spark starts for a source only plan, without Pulsar's client.
    from .reading import read_range

    return read_range(options, cast(RangePartition, partition).value)
