"""Join facts with state, exactly once: each message ends in gold, or in one of the quarantine tables.

This does not rely on the checkpoint. A batch that was killed half-way, or whose checkpoint was lost, finds some facts
already placed, and leaves them where they are.
"""

from collections.abc import Callable
from functools import partial, reduce
from typing import NamedTuple

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.streaming.readwriter import DataStreamWriter
from pyspark.sql.types import StructType

from pulsar_lakehouse.checkpoints.soundness import create_tables_of, sound_checkpoint
from pulsar_lakehouse.contracts.checks import resolve
from pulsar_lakehouse.contracts.decoding import MALFORMED
from pulsar_lakehouse.gold.enrichment.backfill import do_requested
from pulsar_lakehouse.gold.enrichment.batch import Batch
from pulsar_lakehouse.gold.enrichment.changes import changes_of
from pulsar_lakehouse.gold.enrichment.deciding import decide_again
from pulsar_lakehouse.gold.enrichment.declaration import ACTIONS, BACKFILLS, FIXED, Enrichment
from pulsar_lakehouse.gold.enrichment.events import (
    BACKFILL,
    BACKFILL_COLUMN,
    CHANGE,
    DISCARD,
    EVENT,
    as_events,
    is_event,
    summary_of,
    without_changes,
)
from pulsar_lakehouse.gold.enrichment.facts import decode_facts
from pulsar_lakehouse.gold.enrichment.lookups import VALID
from pulsar_lakehouse.gold.enrichment.placing import place_new, quarantine_rejected
from pulsar_lakehouse.gold.enrichment.succession import Succession
from pulsar_lakehouse.gold.enrichment.writes import discard
from pulsar_lakehouse.spark.batches import each_batch
from pulsar_lakehouse.spark.frames import cached
from pulsar_lakehouse.tables.declared import Table
from pulsar_lakehouse.tables.definitions import refuse_other
from pulsar_lakehouse.tables.lake import Lake


def enrich(lake: Lake, enrichment: Enrichment, succession: Succession | None = None) -> DataStreamWriter:
    """The stream that places new facts, retries facts that wait for changed state, and does requested actions.

    One stream has all of these, so that they can't race: a batch joins with state at least as new as the changes it has
    seen, and a later change finds the facts that this batch left waiting.
    A process that makes the stream again and again keeps its `succession`.
    """
    create_tables(lake, enrichment)
    stream = reduce(lambda left, right: left.unionByName(right, allowMissingColumns=True), _sources(lake, enrichment))
    states = (each.table for each in enrichment.feeds)
    reads = [enrichment.topic.bronze_table, *states, ACTIONS.name, BACKFILLS.name]  # in the order of the sources
    succession = succession or Succession()

    def place_batch(events: DataFrame, number: int) -> None:
        with succession.batch(number):
            place = partial(enrich_batch, lake, enrichment, is_first=number == 0, succession=succession)
            each_batch(place)(events, number)

    return stream.writeStream.foreachBatch(place_batch).option(
        "checkpointLocation", sound_checkpoint(lake, enrichment.gold_table, reads=reads)
    )


def _sources(lake: Lake, enrichment: Enrichment) -> list[DataFrame]:
    """The events of bronze, of each state and of requests."""
    # Rows of bronze and of requests only change when messages are erased, also from gold.
    landed = lake.table(enrichment.topic.bronze_table).stream(
        skipChangeCommits=True, maxBytesPerTrigger=lake.settings.run.max_bytes_per_batch
    )
    messages = landed.transform(decode_facts, enrichment=enrichment)
    changes = [
        lake.table(lookup.table)
        .stream(readChangeFeed=True)
        .transform(changes_of, lookup=lookup)
        .withColumn(EVENT, F.lit(CHANGE))
        for lookup in enrichment.feeds
    ]
    actions, requests = (lake.table(each.name).stream(skipChangeCommits=True) for each in (ACTIONS, BACKFILLS))
    is_ours = F.col("topic") == enrichment.topic.name
    asked = actions.where(is_ours).select(F.col("action").alias(EVENT), "position")
    requested = requests.where(is_ours & (F.col("event") == "requested"))
    request = F.struct("request", "since", "until", "entity", "key")
    backfills = requested.select(F.lit(BACKFILL).alias(EVENT), request.alias("backfill")).transform(without_changes)
    return [messages.transform(as_events, enrichment), *changes, asked, backfills]


class Stage(NamedTuple):
    """A part of the work on a batch."""

    does: str
    is_due: bool
    do: Callable[[Batch], object]


def stages_of(batch: Batch) -> list[Stage]:
    """What happens to a batch, in order. New facts come early, because nobody sees them before they are in gold."""
    of, concerns_placed = batch.summary, bool(batch.summary.changed) or batch.summary.released > 0 or batch.is_first
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


def create_tables(lake: Lake, enrichment: Enrichment) -> None:
    gold = gold_of(lake, enrichment)
    refuse_other(lake, gold, FIXED, rebuild=gold.name)
    quarantine = (enrichment.waiting, enrichment.duplicates, enrichment.discarded, MALFORMED)
    tables = [gold, *quarantine, ACTIONS, BACKFILLS]
    create_tables_of(lake, enrichment.gold_table, tables)
    resolve(enrichment.checks, over=gold.schema, within=enrichment.topic.name)


def gold_of(lake: Lake, enrichment: Enrichment) -> Table:
    """The table of complete facts, with the columns that the tables of state have now."""
    rows = {each.name: lake.table(each.table).schema for each in enrichment.lookups}
    states = {name: StructType([column for column in row if column.name not in VALID]) for name, row in rows.items()}
    return enrichment.gold(states)
