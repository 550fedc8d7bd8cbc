"""The stages that a batch of events goes through, in order.

This does not rely on the checkpoint. A batch that was killed half-way, or whose checkpoint was lost, finds some facts
already placed, and leaves them where they are.
"""

from collections.abc import Callable
from typing import NamedTuple

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from pulsar_lakehouse.gold.enrichment.backfill import do_requested
from pulsar_lakehouse.gold.enrichment.deciding import decide_again
from pulsar_lakehouse.gold.enrichment.declaration import Enrichment
from pulsar_lakehouse.gold.enrichment.events import (
    BACKFILL_COLUMN,
    DISCARD,
    Batch,
    as_events,
    is_event,
    summary_of,
    without_changes,
)
from pulsar_lakehouse.gold.enrichment.facts import decode_facts
from pulsar_lakehouse.gold.enrichment.placing import place_new, quarantine_rejected
from pulsar_lakehouse.gold.enrichment.succession import Succession
from pulsar_lakehouse.gold.enrichment.writes import discard
from pulsar_lakehouse.spark.frames import cached
from pulsar_lakehouse.spark.session_settings import described
from pulsar_lakehouse.tables.lake import Lake


class Stage(NamedTuple):
    """A part of the work on a batch."""

    does: str
    """Spark's pages show it with the stage's jobs."""
    is_due: bool
    do: Callable[[Batch], object]


def stages_of(batch: Batch) -> list[Stage]:
    """What happens to a batch, in order. New facts come early, because nobody sees them before they are in gold."""
    of = batch.summary
    concerns_placed = bool(of.changed) or of.released > 0 or of.expired > 0 or batch.is_first
    return [
        Stage("discard waiting facts, as requested", of.discarded > 0, discard_requested),
        Stage("backfill, as requested", len(of.backfills) > 0, do_backfills),
        Stage("note which facts are placed", concerns_placed, lambda batch: batch.placed),
        Stage("place new facts", of.facts > 0, place_new),
        Stage("quarantine rejected messages", of.rejected > 0, quarantine_rejected),
        Stage("decide again about the placed facts that a change or a release concerns", concerns_placed, decide_again),
    ]


def enrich_batch(
    lake: Lake,
    enrichment: Enrichment,
    events: DataFrame,
    *,
    is_first: bool = False,
    succession: Succession | None = None,
) -> None:
    """Process the events of a batch, stage by stage. `is_first` is said of the first batch of a stream.

    If its `succession` says that all messages are new, they are not searched for among those that are placed.
    """
    lake = lake.within(events)
    with cached(events):
        with lake.sized(0):
            summary = summary_of(events, enrichment)
        if summary.backfills and succession:  # a backfill places all that has landed
            succession.doubt()
        is_new = succession is not None and succession.is_new
        batch = Batch(
            lake=lake, enrichment=enrichment, events=events, summary=summary, is_new=is_new, is_first=is_first
        )
        for stage in stages_of(batch):
            if stage.is_due:
                with described(lake.spark, f"{enrichment.topic.name}: {stage.does}"):
                    stage.do(batch)


def discard_requested(batch: Batch) -> None:
    positions = batch.events.where(is_event(DISCARD)).select("position").distinct()
    with batch.lake.sized(batch.summary.events) as lake:
        discard(lake, batch.enrichment, positions)


def do_backfills(batch: Batch) -> None:
    for request in batch.summary.backfills:
        do_requested(batch.lake, batch.enrichment, request)


def enrich_messages(lake: Lake, enrichment: Enrichment, messages: DataFrame) -> None:
    """Place messages of the facts' topic as a separate batch, without changes of state or requests."""
    facts = messages.transform(decode_facts, enrichment=enrichment).transform(as_events, enrichment)
    no_backfill = F.lit(None).cast(BACKFILL_COLUMN).alias("backfill")
    enrich_batch(lake, enrichment, facts.transform(without_changes).select("*", no_backfill))
