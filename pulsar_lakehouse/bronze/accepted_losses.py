"""Records losses that somebody accepts, so that landing continues after them."""

import getpass
import json
from datetime import UTC, datetime

from pulsar_lakehouse.bronze.losses import LOSSES, find_losses, refusal_of
from pulsar_lakehouse.bronze.partitions import CREATED, ask_broker, creation_times, held_by, source_options
from pulsar_lakehouse.bronze.pulsar.losses import Loss
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
    and BrokerError if the broker does not answer.
    """
    table = lake.table(topic.bronze_table)
    if not table.exists():
        return []
    held = held_by(ask_broker(source_options(lake.settings, endpoint, topic)))
    kept = json.loads(table.delta_property(CREATED) or "{}")
    losses = find_losses(lake.settings, topic, held, kept)
    for loss in losses:
        if not loss.can_resume:
            raise PermanentError(refusal_of(topic, loss))
    if losses:
        lake.create(LOSSES)
        name, now, user = topic.full_name(lake.settings.pulsar.namespace), datetime.now(UTC), getpass.getuser()
        partitions = [int(each.partition.rpartition("-")[2]) for each in losses]
        rows = [
            (name, partition, *each.after, *each.resume, each.entries, each.reason, now, user)
            for partition, each in zip(partitions, losses, strict=True)
        ]
        once = ["topic", "partition", "ledger_id", "entry_id"]
        lake.table(LOSSES.name).append_missing(lake.spark.createDataFrame(rows, LOSSES.ddl), on=once)
        table.set_properties({CREATED: json.dumps(kept | creation_times(held), sort_keys=True)})
        # Without a checkpoint, landing continues after the landed entries and the recorded losses.
        lake.files.delete(lake.settings.checkpoint_path(topic.bronze_table))
    return losses


def accepted_losses(settings: Settings) -> dict[str, tuple[int, int]]:
    """By full topic name: the number of accepted losses, and the least number of entries lost. Does not need Spark."""
    if not is_stored(settings, LOSSES.name):
        return {}
    found = query(
        settings, f"SELECT topic, count(*), sum(entries)::BIGINT FROM {LOSSES.name} GROUP BY topic ORDER BY 1"
    )
    return {topic: (count, entries) for topic, count, entries in found.fetchall()}
