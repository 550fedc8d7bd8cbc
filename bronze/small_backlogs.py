"""Lands a small backlog without Spark, as the next batch of the stream that lands the topic.

Spark needs a second to start a stream and to plan a batch, however few messages there are, and a Python process that
asks the broker. What is landed here takes a tenth of that. It leaves the same table and the same checkpoint, so either
can go on after the other.
"""

import json
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import pulsar
import pyarrow as pa
from deltalake import DeltaTable
from pyspark.sql import SparkSession
from pyspark.sql.streaming.datasource import ReadAllAvailable

from bronze.landing import bronze_table, create_bronze_table
from bronze.losses import CREATED, creation_dates, named, source_options
from bronze.pulsar.admin import Held
from bronze.pulsar.options import Options
from bronze.pulsar.planning import Plan
from bronze.pulsar.positions import Offsets, Range
from bronze.pulsar.reading import ARROW_SCHEMA, TIMESTAMP, read_range
from lakehouse.contracts.topics import Topic
from lakehouse.delta.batches import Stopped, begin, next_batch, stopped_after
from lakehouse.delta.checkpoints import batch_context
from lakehouse.delta.reads import columns_of, is_as_of_spark, stored
from lakehouse.delta.tables import EACH_TABLE
from lakehouse.delta.writes import append_arrow
from lakehouse.pulsar.endpoint import Endpoint, connect
from lakehouse.settings import Settings
from lakehouse.storage import uses_store

MAX_BYTES = 8 * 2**20
"""The stored bytes of a small backlog. One process reads larger ones too slowly."""
MAX_READ = 64 * 2**20
"""The bytes of messages that are read of a partition: they are compressed, and the broker tells sizes late."""
TIMEOUT = 10.0
"""Seconds without any message after which the stream reads them, which is more patient."""
COLUMNS = [*ARROW_SCHEMA.names, "landed_at", "publish_date"]


def land_small_backlog(spark: SparkSession, settings: Settings, topic: Topic, endpoint: Endpoint) -> int | None:
    """Land what is new and return the number of messages, or None if the stream has to land it.

    It has to if the backlog is large, if a batch has not ended, if the checkpoint or anything in the topic is lost, or
    the table is of another release, in an object store, and after any fault, which it tells better.
    """
    if uses_store(settings):
        return None
    try:
        return _land(spark, settings, topic, endpoint)
    except Exception:  # whatever it is, the stream goes on from the same checkpoint
        return None


def _land(spark: SparkSession, settings: Settings, topic: Topic, endpoint: Endpoint) -> int | None:
    name = topic.bronze_table
    options = replace(Options.parse(source_options(settings, endpoint, topic)), read_timeout=TIMEOUT)
    plan, stopped = Plan(options, dated=True), stopped_after(settings, name)
    start = Offsets.from_json(json.loads(stopped.offset)) if stopped else plan.starting_offsets()
    end = plan.limited_offsets(start, plan.latest_offsets(), ReadAllAvailable())
    ranges = [planned.value for planned in plan.ranges(start, end)]
    if sum(span.bytes for each in ranges for span in each.spans) > min(MAX_BYTES, settings.run.max_bytes_per_batch):
        return None
    if not stopped and ranges:
        stopped = _begin(spark, settings, topic, plan, start)
    if not stopped or not _can_go_on(stored(settings, name), stopped, topic, plan):
        return None
    plan.guard(start)
    landed = 0
    if ranges:
        with next_batch(settings, name, stopped, json.dumps(end.to_json()), batch_context(spark)) as batch:
            rows = _to_bronze(_read(settings, endpoint, options, ranges))
            append_arrow(settings, name, rows, batch=batch)
            landed = rows.num_rows
    plan.acknowledge(end)
    return landed


def _begin(spark: SparkSession, settings: Settings, topic: Topic, plan: Plan, start: Offsets) -> Stopped | None:
    """Create the table and the checkpoint if there is neither; None if there is one of them."""
    if Path(settings.checkpoint_path(topic.bronze_table)).exists():
        return None
    if not create_bronze_table(spark, settings, topic, _held(plan)):
        return None
    return begin(settings, topic.bronze_table, json.dumps(start.to_json()))


def _held(plan: Plan) -> dict[str, Held]:
    return {named(partition): held for partition, held in plan.held.items()}


def _can_go_on(table: DeltaTable, stopped: Stopped, topic: Topic, plan: Plan) -> bool:
    """Whether the table has the stream's batches, no others of it, and what this release declares.

    And whether the topic still has just the partitions that the table knows.
    """
    held, last = table.metadata().configuration, table.transaction_version(stopped.stream)
    declared = {**EACH_TABLE, **bronze_table(topic).properties}
    is_current = declared.keys() <= held.keys() and columns_of(table).names == COLUMNS and is_as_of_spark(table)
    is_same = creation_dates(_held(plan)) == json.loads(held.get(CREATED, "{}"))
    return is_current and is_same and stopped.number == (-1 if last is None else last)


def _read(settings: Settings, endpoint: Endpoint, options: Options, ranges: Sequence[Range]) -> pa.Table:
    """The messages of the ranges, which are read side by side."""

    def read(client: pulsar.Client, planned: Range) -> list[pa.RecordBatch]:
        batches, room = [], MAX_READ
        for batch in read_range(options, planned, client):
            batches.append(batch)
            room -= batch.nbytes
            if room < 0:
                raise ValueError(f"{planned} is not small")
        return batches

    with closing(connect(endpoint, settings)) as client, ThreadPoolExecutor(len(ranges)) as pool:
        found = pool.map(partial(read, client), ranges)
        return pa.Table.from_batches([batch for batches in found for batch in batches], ARROW_SCHEMA)


def _to_bronze(messages: pa.Table) -> pa.Table:
    """Like `bronze.landing.to_bronze`."""
    landed_at = pa.repeat(pa.scalar(datetime.now(UTC), TIMESTAMP), messages.num_rows)
    added = messages.append_column("landed_at", landed_at)
    return added.append_column("publish_date", messages["publish_time"].cast(pa.date32()))
