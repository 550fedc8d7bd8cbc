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

import pulsar
import pyarrow as pa
from deltalake import DeltaTable
from pyspark.sql.streaming.datasource import ReadAllAvailable

from bronze.landing import bronze_table
from bronze.losses import CREATED, creation_dates, named, source_options
from bronze.pulsar.options import Options
from bronze.pulsar.planning import Plan
from bronze.pulsar.positions import BEGINNING, Offsets, Range, spans_between
from bronze.pulsar.reading import ARROW_SCHEMA, TIMESTAMP, read_range
from lakehouse.contracts.topics import Topic
from lakehouse.delta.batches import Stopped, next_batch, stopped_after
from lakehouse.delta.reads import columns_of, is_as_of_spark, stored
from lakehouse.delta.tables import EACH_TABLE
from lakehouse.delta.writes import append_arrow
from lakehouse.pulsar.endpoint import Endpoint, connect
from lakehouse.settings import Settings
from lakehouse.storage import uses_store

MAX_BYTES = 8 * 2**20
"""The stored bytes of a small backlog. One process reads larger ones too slowly."""
TIMEOUT = 10.0
"""Seconds without any message after which the stream reads them, which is more patient."""
COLUMNS = [*ARROW_SCHEMA.names, "landed_at", "publish_date"]


def land_small_backlog(settings: Settings, topic: Topic, endpoint: Endpoint) -> int | None:
    """Land what is new and return the number of messages, or None if the stream has to land it.

    It has to if the backlog is large, if the stream has no batch yet or one that has not ended, if anything may be
    lost, or has changed since the stream was made, in an object store, and after any fault, which it tells better.
    """
    if uses_store(settings):
        return None
    try:
        return _land(settings, topic, endpoint)
    except Exception:  # whatever it is, the stream goes on from the same checkpoint
        return None


def _land(settings: Settings, topic: Topic, endpoint: Endpoint) -> int | None:
    stopped = stopped_after(settings, topic.bronze_table)
    table = stored(settings, topic.bronze_table)
    if not stopped or not _is_written_by(table, stopped, topic):
        return None
    options = replace(Options.parse(source_options(settings, endpoint, topic)), read_timeout=TIMEOUT)
    plan = Plan(options, dated=True)
    if not _is_unchanged(plan, table, topic):
        return None
    start = Offsets.from_json(json.loads(stopped.offset))
    plan.refuse_lost_data(start)
    end = plan.limited_offsets(start, plan.latest_offsets(), ReadAllAvailable())
    new = [span for name in end for span in spans_between(plan.held[name].ledgers, start.get(name, BEGINNING))]
    if sum(span.bytes for span in new) > min(MAX_BYTES, settings.run.max_bytes_per_batch):
        return None
    landed = 0
    if new:
        ranges = [planned.value for planned in plan.ranges(start, end)]
        with next_batch(settings, topic.bronze_table, stopped, json.dumps(end.to_json())) as batch:
            rows = _to_bronze(_read(settings, endpoint, options, ranges), columns_of(table))
            append_arrow(settings, topic.bronze_table, rows, batch=batch)
            landed = rows.num_rows
    plan.acknowledge(end)
    return landed


def _is_written_by(table: DeltaTable, stopped: Stopped, topic: Topic) -> bool:
    """Whether the table has the stream's batches, no others of it, and everything else that the stream gives it."""
    declared = {**EACH_TABLE, **bronze_table(topic).properties}
    is_current = declared.keys() <= table.metadata().configuration.keys() and columns_of(table).names == COLUMNS
    return is_current and is_as_of_spark(table) and table.transaction_version(stopped.stream) == stopped.number


def _is_unchanged(plan: Plan, table: DeltaTable, topic: Topic) -> bool:
    """Whether the topic has the partitions that the table knows, and each of them a subscription."""
    known = json.loads(table.metadata().configuration.get(CREATED, "{}"))
    found = creation_dates({named(partition): held for partition, held in plan.held.items()})
    return found == known and all(held.cursor(topic.subscription) for held in plan.held.values())


def _read(settings: Settings, endpoint: Endpoint, options: Options, ranges: Sequence[Range]) -> pa.Table:
    """The messages of the ranges, which are read side by side."""

    def read(client: pulsar.Client, planned: Range) -> list[pa.RecordBatch]:
        return list(read_range(options, planned, client))

    with closing(connect(endpoint, settings)) as client, ThreadPoolExecutor(len(ranges)) as pool:
        found = pool.map(partial(read, client), ranges)
        return pa.Table.from_batches([batch for batches in found for batch in batches], ARROW_SCHEMA)


def _to_bronze(messages: pa.Table, columns: pa.Schema) -> pa.Table:
    """Like `bronze.landing.to_bronze`."""
    landed_at = pa.repeat(pa.scalar(datetime.now(UTC), TIMESTAMP), messages.num_rows)
    added = messages.append_column("landed_at", landed_at)
    return added.append_column("publish_date", messages["publish_time"].cast(pa.date32())).cast(columns)
