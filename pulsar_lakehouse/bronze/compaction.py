"""Knows which messages landed from what compaction had kept: the broker had deleted the others, which are no loss."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import reduce

from pyspark.sql import Column
from pyspark.sql import functions as F

from pulsar_lakehouse.bronze.pulsar.admin import Held
from pulsar_lakehouse.contracts.topics import Topic
from pulsar_lakehouse.reconciliation import Reconciliation
from pulsar_lakehouse.tables.lake import Lake

COMPACTED = "lakehouse.compacted"
"""The table property with the oldest ledger of each partition that was compacted when it first landed, as JSON.

What landed from older ledgers, compaction had kept.
"""


def note_of_compacted(held: Mapping[str, Held], names: Iterable[str], before: str | None = None) -> dict[str, str]:
    """The property, for partitions with these names that land for the first time; none if no partition has it."""
    first = {name: held[name].first for name in names if held[name].compacted} | json.loads(before or "{}")
    return {COMPACTED: json.dumps(first, sort_keys=True)} if first else {}


def with_compacted(lake: Lake, topic: Topic, reconciliation: Reconciliation) -> Reconciliation:
    """Counts the landed messages that compaction had kept."""
    bronze = lake.table(topic.bronze_table)
    if not (first := json.loads(bronze.delta_property(COMPACTED) or "{}")):
        return reconciliation
    kept = reduce(Column.__or__, (_is_older(partition, ledger) for partition, ledger in first.items()))
    return replace(reconciliation, compacted=bronze.read().where(kept).count())


def _is_older(partition: str, ledger: int) -> Column:
    topic, _, index = partition.rpartition("-partition-")
    return (F.col("topic") == topic) & (F.col("partition") == int(index)) & (F.col("ledger_id") < ledger)
