"""Join facts with state, exactly once: each message ends in gold, or in one of the quarantine tables.

This does not rely on the checkpoint. A batch that was killed half-way, or whose checkpoint was lost, finds some facts
already placed, and leaves them where they are.
"""

from functools import partial, reduce

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.streaming.readwriter import DataStreamWriter
from pyspark.sql.types import StructType

from pulsar_lakehouse.checkpoints.soundness import create_tables_of, sound_checkpoint
from pulsar_lakehouse.contracts.checks import resolve
from pulsar_lakehouse.contracts.decoding import MALFORMED
from pulsar_lakehouse.contracts.malformed import position_in
from pulsar_lakehouse.gold.enrichment.changes import changes_of
from pulsar_lakehouse.gold.enrichment.declaration import ACTIONS, BACKFILLS, FIXED, Enrichment
from pulsar_lakehouse.gold.enrichment.events import (
    BACKFILL,
    CHANGE,
    EVENT,
    VALID,
    as_events,
    without_changes,
)
from pulsar_lakehouse.gold.enrichment.facts import decode_facts
from pulsar_lakehouse.gold.enrichment.matches import moves_of
from pulsar_lakehouse.gold.enrichment.stages import enrich_batch
from pulsar_lakehouse.gold.enrichment.succession import Succession
from pulsar_lakehouse.spark.batches import each_batch
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
    succession = succession or Succession()

    def place_batch(events: DataFrame, number: int) -> None:
        with succession.batch(number):
            place = partial(enrich_batch, lake, enrichment, is_first=number == 0, succession=succession)
            each_batch(place)(events, number)

    return stream.writeStream.foreachBatch(place_batch).option(
        "checkpointLocation", sound_checkpoint(lake, enrichment.gold_table, reads=reads(enrichment))
    )


def reads(enrichment: Enrichment) -> list[str]:
    """The tables that the stream reads, in the order of its sources: bronze, states, and two with requests."""
    states = [*(each.table for each in enrichment.feeds), *(each.table for each in enrichment.matches)]
    return [enrichment.topic.bronze_table, *states, ACTIONS.name, BACKFILLS.name]


def _sources(lake: Lake, enrichment: Enrichment) -> list[DataFrame]:
    """The events of bronze, of each state and of requests."""
    # Rows of bronze and of requests only change when messages are erased, also from gold.
    landed = lake.table(enrichment.topic.bronze_table).stream(
        skipChangeCommits=True, maxBytesPerTrigger=lake.settings.run.max_bytes_per_batch
    )
    messages = landed.transform(decode_facts, enrichment=enrichment)
    changed = [_feed(lake, lookup.table).transform(changes_of, lookup=lookup) for lookup in enrichment.feeds]
    changed += [_feed(lake, match.table).transform(moves_of, match=match) for match in enrichment.matches]
    changes = [each.withColumn(EVENT, F.lit(CHANGE)) for each in changed]
    actions, requests = (lake.table(each.name).stream(skipChangeCommits=True) for each in (ACTIONS, BACKFILLS))
    is_ours = F.col("topic") == enrichment.topic.name
    asked = actions.where(is_ours).select(F.col("action").alias(EVENT), position_in(enrichment.topic))
    requested = requests.where(is_ours & (F.col("event") == "requested"))
    request = F.struct("request", "since", "until", "entity", "key")
    backfills = requested.select(F.lit(BACKFILL).alias(EVENT), request.alias("backfill")).transform(without_changes)
    return [messages.transform(as_events, enrichment), *changes, asked, backfills]


def _feed(lake: Lake, table: str) -> DataFrame:
    return lake.table(table).stream(readChangeFeed=True)


def create_tables(lake: Lake, enrichment: Enrichment) -> None:
    gold = gold_of(lake, enrichment)
    refuse_other(lake, gold, FIXED, rebuild=gold.name)
    quarantine = (enrichment.waiting, enrichment.duplicates, enrichment.discarded, MALFORMED)
    tables = [gold, *quarantine, ACTIONS, BACKFILLS]
    create_tables_of(lake, enrichment.gold_table, tables)
    resolve(enrichment.checks, over=gold.schema, within=enrichment.topic.name)


def gold_of(lake: Lake, enrichment: Enrichment) -> Table:
    """The table of complete facts, with the columns that the tables of state have now."""
    rows = {each.name: lake.table(each.table).schema for each in enrichment.joins}
    states = {name: StructType([column for column in row if column.name not in VALID]) for name, row in rows.items()}
    return enrichment.gold(states)
