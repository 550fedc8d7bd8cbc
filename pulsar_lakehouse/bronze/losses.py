"""Decides, from how far a topic has landed and what the broker still has, whether messages were lost in between."""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace

import duckdb
import pyarrow as pa
from deltalake.exceptions import DeltaError

from pulsar_lakehouse.bronze.erasures import ERASURES
from pulsar_lakehouse.bronze.partitions import CREATED, ask_broker, held_by, partition_in_bronze
from pulsar_lakehouse.bronze.pulsar.admin import Held
from pulsar_lakehouse.bronze.pulsar.losses import Loss, find_loss
from pulsar_lakehouse.bronze.pulsar.planning import Plan
from pulsar_lakehouse.bronze.pulsar.positions import BEGINNING, Offsets, Position, topic_of
from pulsar_lakehouse.checkpoints.batches import last_batch
from pulsar_lakehouse.contracts.topics import Topic
from pulsar_lakehouse.errors import LakehouseError, PermanentError
from pulsar_lakehouse.pulsar.endpoint import Endpoint
from pulsar_lakehouse.settings import Settings
from pulsar_lakehouse.tables.declared import Table
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
    losses = [loss for loss in found if loss]
    if kept and (clashing := clashes(held, landed)) and not _knows_the_cluster(plan, kept):
        return [*clashing, *(loss for loss in losses if not loss.exists)]
    return losses


def clashes(held: Mapping[str, Held], landed: Offsets) -> list[Loss]:
    """A loss of each partition, after which landing can't go on, if one has positions that may have landed already.

    A cluster numbers all ledgers. Another cluster gives messages numbers that have landed. So none of its partitions
    may land: once one has, the cluster would pass for the one that was known.
    """
    newest = max(landed.values(), default=BEGINNING)
    begins = {
        name: BEGINNING if each.compacted and name not in landed else Position(each.first, -1)
        for name, each in held.items()
    }
    if all(begin > newest for begin in begins.values()):
        return []
    reason = (
        "no partition that has landed is there as it was, so this may be another cluster: messages up to "
        f"{newest} have landed, and topics that begin before that could not be told from them"
    )
    return [
        Loss(partition=name, after=landed.get(name, BEGINNING), resume=begin, reason=reason, can_resume=False)
        for name, begin in begins.items()
    ]


def _knows_the_cluster(plan: Plan, kept: Mapping[str, str]) -> bool:
    """Whether a partition that has landed is there as it was: if need be, one that lands no more."""
    if _survives(held_by(plan), kept):
        return True
    others = sorted(set(map(topic_of, kept)) - set(plan.options.topics))
    plans = (Plan(replace(plan.options, topics=(name,)), dated=True, is_partial=True) for name in others)
    return any(_survives(held_by(each), kept) for each in plans)


def _survives(held: Mapping[str, Held], kept: Mapping[str, str]) -> bool:
    return any(each.created in (None, kept[name]) for name, each in held.items() if name in kept)


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
