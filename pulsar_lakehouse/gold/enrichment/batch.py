"""A batch of events as its stages see it."""

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from pyspark.sql import DataFrame

from pulsar_lakehouse.gold.enrichment.declaration import Enrichment
from pulsar_lakehouse.gold.enrichment.events import Summary
from pulsar_lakehouse.tables.lake import Lake, Pinned


class Placed(NamedTuple):
    """The facts in gold and the waiting ones at some moment."""

    gold: Pinned
    waiting: Pinned


@dataclass(frozen=True, kw_only=True)
class Batch:
    """The cached events of a batch, and what is known of them."""

    lake: Lake
    enrichment: Enrichment
    events: DataFrame
    summary: Summary
    is_new: bool = False
    """Whether no message of the batch can have been placed before, so that none has to be searched for."""
    is_first: bool = False
    """Whether it is the first batch of its stream. Its changes are the current state, and don't show which merges were
    undone before."""

    @cached_property
    def placed(self) -> Placed:
        """The facts that are placed when this is asked for the first time."""
        gold, waiting = (self.lake.table(name) for name in (self.enrichment.gold_table, self.enrichment.waiting.name))
        return Placed(gold=gold.pin(), waiting=waiting.pin())
