"""Records losses that somebody accepts, so that landing continues after them."""

import getpass
import json
from datetime import UTC, datetime

from pulsar_lakehouse.bronze.losses import LOSSES, find_losses, refusal_of
from pulsar_lakehouse.bronze.partitions import CREATED, ask_broker, creation_times, held_by
from pulsar_lakehouse.bronze.pulsar.losses import Loss
from pulsar_lakehouse.bronze.pulsar.options import PulsarSourceError
from pulsar_lakehouse.bronze.pulsar.positions import topic_of
from pulsar_lakehouse.contracts.topics import Topic
from pulsar_lakehouse.errors import PermanentError
from pulsar_lakehouse.inspection.query import query
from pulsar_lakehouse.pulsar.endpoint import Endpoint
from pulsar_lakehouse.settings import Settings
from pulsar_lakehouse.tables.lake import Lake
from pulsar_lakehouse.tables.stored import is_stored


def accept_losses(lake: Lake, topic: Topic, endpoint: Endpoint) -> list[Loss]:
    """Record the losses of a topic in `bronze.losses`, so that landing can continue with what is left; returns them.

    Raises PermanentError if landing could not continue after a loss, or if the broker refuses or has no such topic,
    and BrokerError if the broker does not answer. Of several topics, those with such a loss are left as they are.
    """
    table = lake.table(topic.bronze_table)
    if not table.exists():
        return []
    plan = ask_broker(lake.settings, endpoint, topic)
    kept = json.loads(table.delta_property(CREATED) or "{}")
    losses = find_losses(lake.settings, topic, plan, kept)
    for loss in [loss for loss in losses if not loss.can_resume]:
        if not topic.is_several:
            raise PermanentError(refusal_of(topic, loss))
        plan.leave_out(topic_of(loss.partition), PulsarSourceError(str(loss)))
    losses = [loss for loss in losses if plan.reads(loss.partition)]
    if losses:
        lake.create(LOSSES)
        now, user = datetime.now(UTC), getpass.getuser()
        rows = [
            (*_place_of(each.partition), *each.after, *each.resume, each.entries, each.reason, now, user)
            for each in losses
        ]
        once = ["topic", "partition", "ledger_id", "entry_id"]
        lake.table(LOSSES.name).append_missing(lake.spark.createDataFrame(rows, LOSSES.ddl), on=once)
        lost, found = {each.partition for each in losses}, creation_times(held_by(plan))
        created = kept | {name: time for name, time in found.items() if name in lost}
        table.set_properties({CREATED: json.dumps(created, sort_keys=True)})
        # Without a checkpoint, landing continues after the landed entries and the recorded losses.
        lake.files.delete(lake.settings.checkpoint_path(topic.bronze_table))
    return losses


def _place_of(partition: str) -> tuple[str, int]:
    """The topic and the index of a partition, by its name in bronze."""
    return topic_of(partition), int(partition.rpartition("-")[2])


def accepted_losses(settings: Settings) -> dict[str, tuple[int, int]]:
    """By full topic name: the number of accepted losses, and the least number of entries lost. Does not need Spark."""
    if not is_stored(settings, LOSSES.name):
        return {}
    found = query(
        settings, f"SELECT topic, count(*), sum(entries)::BIGINT FROM {LOSSES.name} GROUP BY topic ORDER BY 1"
    )
    return {topic: (count, entries) for topic, count, entries in found.fetchall()}
