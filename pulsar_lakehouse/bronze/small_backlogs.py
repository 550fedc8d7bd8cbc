"""Lands a small backlog without Spark, as the next batch of the stream that lands the topic.

Spark needs a second to start a stream and to plan a batch, however few messages there are, and a Python process that
asks the broker. This leaves the same table and the same checkpoint, so either can go on after the other.
"""

import json
from collections.abc import Sequence
from concurrent.futures import CancelledError, ThreadPoolExecutor
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path

import pulsar
import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError
from obstore.exceptions import BaseError
from pyspark.sql.streaming.datasource import ReadAllAvailable

from pulsar_lakehouse.bronze.landing import arrow_to_bronze, bronze_table, create_bronze_table, say_what_is_unusual
from pulsar_lakehouse.bronze.partitions import CREATED, creation_times, held_by
from pulsar_lakehouse.bronze.pulsar.columns import ARROW_SCHEMA
from pulsar_lakehouse.bronze.pulsar.options import PulsarSourceError
from pulsar_lakehouse.bronze.pulsar.planning import Plan
from pulsar_lakehouse.bronze.pulsar.positions import Range
from pulsar_lakehouse.bronze.pulsar.reading import read_range
from pulsar_lakehouse.bronze.pulsar.subscription import acknowledge, ensure_subscriptions
from pulsar_lakehouse.bronze.reach import Reach
from pulsar_lakehouse.checkpoints.batches import Stopped, begin, next_batch, stopped_after
from pulsar_lakehouse.checkpoints.soundness import batch_context
from pulsar_lakehouse.contracts.topics import Topic
from pulsar_lakehouse.errors import LakehouseError
from pulsar_lakehouse.limits import BACKLOG_BYTES, BACKLOG_MEMORY
from pulsar_lakehouse.locks import Permit
from pulsar_lakehouse.progress import CONSOLE
from pulsar_lakehouse.pulsar.endpoint import Endpoint, connect
from pulsar_lakehouse.settings import Settings
from pulsar_lakehouse.storage import is_used
from pulsar_lakehouse.tables.declared import EACH_TABLE, commit_file
from pulsar_lakehouse.tables.direct import append_batch
from pulsar_lakehouse.tables.lake import Lake
from pulsar_lakehouse.tables.stored import columns_of, has_known_features, stored_table

READERS = 4
"""How many partitions are read at once."""
TIMEOUT = 10.0
"""Seconds without any message after which the stream reads them, which is more patient."""
COLUMNS = [*ARROW_SCHEMA.names, "landed_at", "publish_date"]


class _NotSmallError(LakehouseError):
    """The messages take more memory than BACKLOG_MEMORY."""


def land_small_backlog(lake: Lake, reach: Reach, permit: Permit) -> int | None:
    """Land what is new and return the number of messages, or None if the stream has to land it.

    The stream has to if the backlog is large, if a batch has not ended, if the checkpoint or anything in the topic is
    lost, if the table is torn or of another release, and in an object store. It also has to after a fault, which it
    retries and reports. This writes only while it has the permit. The process must hold the lease of the topic's table.
    Of several topics, it leaves out those that can't land, as `reach` says.
    """
    if is_used(lake.settings) and not reach.topic.is_several:
        return None
    try:
        return _land(lake, reach, permit)
    except (PulsarSourceError, pulsar.PulsarException, DeltaError, BaseError, OSError, LakehouseError, CancelledError):
        return None
    except Exception as error:  # a fault of this code: the stream will not meet it, and so not report it
        CONSOLE.say(f"{reach.topic.name}: Spark lands what this process could not: {type(error).__name__}: {error}")
        return None


def _land(lake: Lake, reach: Reach, permit: Permit) -> int | None:
    """The stages of `land` in landing.py. What may be unsound is left to the stream before anything is written."""
    topic, plan = reach.topic, reach.plan()
    name = topic.bronze_table
    if not plan.options.topics:  # a pattern matches none yet
        with permit.used():
            create_bronze_table(lake, topic, plan)
        return 0
    if is_used(lake.settings):
        return None
    stopped = stopped_after(lake.settings, name)
    start = plan.offsets(json.loads(stopped.offset)) if stopped else plan.starting_offsets()
    end = plan.limited_offsets(start, plan.latest_offsets(), ReadAllAvailable())
    ranges = [planned.value for planned in plan.ranges(start, end)]
    waiting = sum(span.bytes for each in ranges for span in each.spans)
    if waiting > min(BACKLOG_BYTES, lake.settings.run.max_bytes_per_batch):
        return None
    if stopped:
        table = stored_table(lake.settings, name)
        if not _can_go_on(lake.settings, table, stopped, topic, plan):
            return None
    elif not ranges or any(Path(of(name)).exists() for of in (lake.settings.table_path, lake.settings.checkpoint_path)):
        return None  # there is a table or a checkpoint, or a rest of one
    plan.refuse_lost_data(start)
    say_what_is_unusual(topic, plan, is_new=stopped is None)
    ensure_subscriptions(plan)
    landed = 0
    if ranges:
        rows = arrow_to_bronze(_read(lake.settings, reach.endpoint, plan, ranges))
        with permit.used():
            if not stopped:
                create_bronze_table(lake, topic, plan)
                stopped = begin(lake.settings, name, json.dumps(start.to_json()))
                table = stored_table(lake.settings, name)
            until, context = json.dumps(end.to_json()), batch_context(lake.spark)
            with next_batch(lake.settings, name, stopped, until, context) as batch:
                append_batch(lake.settings, name, rows, batch, seen=table)
        landed = rows.num_rows
    with suppress(PulsarSourceError):  # it is acknowledged the next time
        acknowledge(plan, end)
    return landed


def _can_go_on(settings: Settings, table: DeltaTable, stopped: Stopped, topic: Topic, plan: Plan) -> bool:
    """Whether the table is whole, at the stream's last batch, and has what this release declares.

    And whether the topic still has just the partitions that the table knows.
    """
    properties, declared = table.metadata().configuration, {**EACH_TABLE, **bronze_table(topic).properties}
    is_current = (
        declared.keys() <= properties.keys() and columns_of(table).names == COLUMNS and has_known_features(table)
    )
    kept = json.loads(properties.get(CREATED, "{}"))
    is_same = creation_times(held_by(plan)) == {name: time for name, time in kept.items() if plan.reads(name)}
    last_commit = Path(settings.table_path(topic.bronze_table), commit_file(table.version()))
    is_whole = last_commit.stat().st_size > 0  # deltalake reads a torn commit as one without changes
    last_batch = table.transaction_version(stopped.stream)
    return is_current and is_same and is_whole and stopped.number == (-1 if last_batch is None else last_batch)


def _read(settings: Settings, endpoint: Endpoint, plan: Plan, ranges: Sequence[Range]) -> pa.Table:
    """The messages of the ranges, some of which are read at once."""
    batches, options = list[pa.RecordBatch](), replace(plan.options, read_timeout=TIMEOUT)

    def read(planned: Range) -> None:
        for batch in read_range(options, planned, client):
            batches.append(batch)
            if sum(each.nbytes for each in batches) > BACKLOG_MEMORY:
                raise _NotSmallError

    # A client of this process logs to a file of the home, not to the terminal.
    with closing(connect(endpoint, settings)) as client, ThreadPoolExecutor(READERS) as pool:
        list(pool.map(read, ranges))
    return pa.Table.from_batches(batches, ARROW_SCHEMA)
