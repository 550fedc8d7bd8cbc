"""Decides, from how far a topic has landed and what the broker still has, whether messages were lost in between."""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace

import duckdb
import pyarrow as pa
from deltalake.exceptions import DeltaError

from pulsar_lakehouse.bronze.compaction import COMPACTED, note_of_compacted
from pulsar_lakehouse.bronze.erasures import ERASURES
from pulsar_lakehouse.bronze.partitions import (
    CREATED,
    ask_broker,
    creation_times,
    held_by,
    partition_in_bronze,
)
from pulsar_lakehouse.bronze.pulsar.losses import Loss, find_loss
from pulsar_lakehouse.bronze.pulsar.planning import Plan
from pulsar_lakehouse.bronze.pulsar.positions import BEGINNING, Offsets, Position
from pulsar_lakehouse.checkpoints.batches import last_batch
from pulsar_lakehouse.contracts.topics import Topic
from pulsar_lakehouse.errors import LakehouseError, PermanentError
from pulsar_lakehouse.pulsar.endpoint import Endpoint
from pulsar_lakehouse.settings import Settings
from pulsar_lakehouse.tables.declared import Table
from pulsar_lakehouse.tables.lake import Lake
from pulsar_lakehouse.tables.stored import dataset_of, is_stored, stored_table

LOSSES = Table(
    name="bronze.losses",
    columns="""
        topic STRING, partition INT, after_ledger_id BIGINT, after_entry_id BIGINT, ledger_id BIGINT, entry_id BIGINT,
        entries BIGINT, reason STRING, accepted_at TIMESTAMP, accepted_by STRING
    """,
)
"""Accepted losses: the entries after the last landed one, up to `ledger_id` and `entry_id`.

`entries` is the least number of entries that were lost.
"""


def keep_created(lake: Lake, topic: Topic, plan: Plan) -> None:
    """Record the creation times of partitions that have none in the table's properties, and which are compacted.

    Raises PermanentError if a partition was recreated since its time was recorded.
    """
    table, held = lake.table(topic.bronze_table), held_by(plan)
    kept, found = json.loads(table.delta_property(CREATED) or "{}"), creation_times(held)
    if any(found.get(name, time) != time for name, time in kept.items()):
        for loss in find_losses(lake.settings, topic, plan, kept):
            raise PermanentError(refusal_of(topic, loss))
    if new := found.keys() - kept.keys():
        # A table that knows none is of an early release: its partitions have landed.
        compacted = note_of_compacted(held, new, table.delta_property(COMPACTED)) if kept else {}
        table.set_properties({CREATED: json.dumps(found | kept, sort_keys=True)} | compacted)


def refusal(settings: Settings, topic: Topic, endpoint: Endpoint) -> str | None:
    """Why landing would refuse to continue; None if it would not refuse.

    Does not need Spark. Raises UnreachableError if the broker does not answer.
    """
    try:
        table = stored_table(settings, topic.bronze_table)
    except DeltaError:  # there is no table, or its creation was cut off
        return None
    try:
        plan = ask_broker(settings, endpoint, topic)
    except PermanentError as error:
        return str(error)
    kept = json.loads(table.metadata().configuration.get(CREATED, "{}"))
    losses = find_losses(settings, topic, plan, kept)
    return refusal_of(topic, losses[0]) if losses else None


def refusal_of(topic: Topic, loss: Loss) -> str:
    """Why landing does not continue after a loss, and what would help."""
    if loss.can_resume:
        return f"{loss}; `lakehouse land {topic.name} --accept-loss` writes that down and goes on"
    if not loss.exists:
        return (
            f"{loss}: create it again, with `lakehouse topics create` or, if the topic has only too few partitions, "
            "`pulsar-admin topics update-partitioned-topic`"
        )
    return f"{loss}: start again with another home, or restore what the broker had"


def find_losses(settings: Settings, topic: Topic, plan: Plan, kept: Mapping[str, str]) -> list[Loss]:
    """What is lost of each partition that is planned. `kept` are the creation times of those that have landed."""
    held, landed = held_by(plan), _end_of_last_batch(settings, topic)
    if landed is None:
        landed = landed_offsets(settings, topic)
    names = sorted(filter(plan.reads, held.keys() | landed.keys() | kept.keys()))
    after = ((name, landed.get(name, BEGINNING)) for name in names)
    found = (find_loss(name, end, held.get(name), topic.subscription, kept.get(name)) for name, end in after)
    return without_clashes([loss for loss in found if loss])


def without_clashes(losses: Sequence[Loss]) -> list[Loss]:
    """The losses, where landing can't go on with what was recreated if its positions may be those of other partitions.

    A cluster numbers all ledgers. What was recreated in another cluster can have numbers that have landed.
    """
    last = max((each.after for each in losses if each.is_anew), default=BEGINNING)
    return [
        replace(each, can_resume=each.can_resume and each.resume > last) if each.is_anew else each for each in losses
    ]


def _end_of_last_batch(settings: Settings, topic: Topic) -> Offsets | None:
    """Where the last landed batch ended, by the checkpoint; None if there is no checkpoint, or if it is torn."""
    if (batch := last_batch(settings, topic.bronze_table)) is None:
        return None
    try:
        offsets = json.loads(batch.offsets.splitlines()[-1])
    except (ValueError, IndexError):
        return None
    return Offsets.from_json({partition_in_bronze(name): str(position) for name, position in offsets.items()})


def landed_offsets(settings: Settings, topic: Topic) -> Offsets:
    """The last entry of each partition that landed, even if it was erased since, or was accepted as lost.

    Landing goes on after these if its checkpoint is lost.
    """
    landed = Offsets()
    erased = "(SELECT unnest(messages, max_depth := 2) FROM stored) WHERE bronze = ?"
    for name, rows, values in (
        (topic.bronze_table, "stored", []),
        (ERASURES.name, erased, [topic.bronze_table]),
        (LOSSES.name, "stored", []),
    ):
        with _retried(name):
            if not is_stored(settings, name):
                continue
            tables = duckdb.connect().register("stored", dataset_of(stored_table(settings, name)))
            last = "max(struct_pack(ledger := ledger_id, entry := entry_id))"
            found = tables.execute(f"SELECT topic, partition, {last} FROM {rows} GROUP BY ALL", values).fetchall()
            for topic_name, index, end in found:
                if name == LOSSES.name and not topic.lands(topic_name, settings.pulsar.namespace):
                    continue
                partition = f"{topic_name}-partition-{index}"
                landed[partition] = max(landed.get(partition, BEGINNING), Position(end["ledger"], end["entry"]))
    return landed


@contextmanager
def _retried(name: str) -> Iterator[None]:
    """Raises LakehouseError, after which a stream tries again, if a table can't be read."""
    try:
        yield
    except (DeltaError, duckdb.Error, pa.ArrowException, OSError) as error:
        raise LakehouseError(f"{name}: {error}") from error
