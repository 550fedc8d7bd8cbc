"""Join facts with state, exactly once: each message ends in gold, or in one of the quarantine tables.

This does not rely on the checkpoint. A batch that was killed half-way, or whose checkpoint was lost, finds some facts
already placed, and leaves them where they are.
"""

from collections.abc import Sequence
from contextlib import ExitStack, nullcontext
from functools import partial, reduce
from typing import Any, NamedTuple

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.streaming.readwriter import DataStreamWriter
from pyspark.sql.types import StructType

from pulsar_lakehouse.contracts.checks import resolve
from pulsar_lakehouse.contracts.decoding import MALFORMED, quarantine_malformed
from pulsar_lakehouse.delta.checkpoints import create_tables_of, sound_checkpoint
from pulsar_lakehouse.delta.definitions import refuse_other
from pulsar_lakehouse.delta.reads import no_rows, rows_if_small, rows_of_keys, rows_since
from pulsar_lakehouse.delta.tables import Pinned, Table, cached, of_keys
from pulsar_lakehouse.delta.writes import writes_of
from pulsar_lakehouse.gold.enrichment.backfill import do_requested
from pulsar_lakehouse.gold.enrichment.changes import (
    changes_of,
    corrections_by,
    fact_columns,
    first_outdated,
    merged_in,
    outdated_by,
    waiting_for,
)
from pulsar_lakehouse.gold.enrichment.declaration import ACTIONS, BACKFILLS, FIXED, Enrichment, Lookup
from pulsar_lakehouse.gold.enrichment.duplicates import find_duplicates, repeated_keys
from pulsar_lakehouse.gold.enrichment.events import (
    BACKFILL,
    BACKFILL_COLUMN,
    CHANGE,
    DISCARD,
    EVENT,
    REJECTED,
    as_events,
    facts_among,
    is_event,
    summary_of,
    without_changes,
)
from pulsar_lakehouse.gold.enrichment.facts import decode_facts
from pulsar_lakehouse.gold.enrichment.lookups import VALID, is_corrected, look_up
from pulsar_lakehouse.gold.enrichment.writes import (
    Pruning,
    bounds_of,
    discard,
    placed_keys,
    placed_of,
    pruning_filter,
    stop_if_difference_fails,
    with_current,
    write_difference,
    write_duplicates,
    write_new,
)
from pulsar_lakehouse.settings import Settings
from pulsar_lakehouse.spark.batches import FEW, Succession, each_batch, interpreted_for, planned_for
from pulsar_lakehouse.tables.lake import Lake


def enrich(lake: Lake, enrichment: Enrichment, succession: Succession | None = None) -> DataStreamWriter:
    """The stream that places new facts, retries facts that wait for changed state, and does requested actions.

    One stream has all of these, so that they can't race: a batch joins with state at least as new as the changes it has
    seen, and a later change finds the facts that this batch left waiting.
    A process that makes the stream again and again keeps its `succession`.
    """
    create_tables(lake, enrichment)
    sources = _sources(lake, enrichment)
    stream = reduce(lambda left, right: left.unionByName(right, allowMissingColumns=True), sources)
    states = (each.table for each in enrichment.feeds)
    reads = [enrichment.topic.bronze_table, *states, ACTIONS.name, BACKFILLS.name]  # in the order of the sources
    succession = succession or Succession()

    def place_batch(batch: DataFrame, number: int) -> None:
        with succession.batch(number):
            place = partial(enrich_batch, lake.settings, enrichment, is_first=number == 0, succession=succession)
            each_batch(place)(batch, number)

    return stream.writeStream.foreachBatch(place_batch).option(
        "checkpointLocation", sound_checkpoint(lake, enrichment.gold_table, reads=reads)
    )


def _sources(lake: Lake, enrichment: Enrichment) -> list[DataFrame]:
    """The events of bronze, of each state and of requests."""

    def stream_of(table: str, **options: Any) -> DataFrame:
        return lake.spark.readStream.format("delta").options(**options).load(lake.settings.table_path(table))

    # Rows of bronze and of requests only change when messages are erased, also from gold.
    appended = partial(stream_of, skipChangeCommits=True)
    landed = appended(enrichment.topic.bronze_table, maxBytesPerTrigger=lake.settings.run.max_bytes_per_batch)
    messages = landed.transform(decode_facts, enrichment=enrichment)
    changes = [
        stream_of(lookup.table, readChangeFeed=True)
        .transform(changes_of, lookup=lookup)
        .withColumn(EVENT, F.lit(CHANGE))
        for lookup in enrichment.feeds
    ]
    is_ours = F.col("topic") == enrichment.topic.name
    asked = appended(ACTIONS.name).where(is_ours).select(F.col("action").alias(EVENT), "position")
    requested = appended(BACKFILLS.name).where(is_ours & (F.col("event") == "requested"))
    request = F.struct("request", "since", "until", "entity", "key")
    backfills = requested.select(F.lit(BACKFILL).alias(EVENT), request.alias("backfill")).transform(without_changes)
    return [messages.transform(as_events, enrichment), *changes, asked, backfills]


def enrich_batch(
    settings: Settings,
    enrichment: Enrichment,
    batch: DataFrame,
    *,
    is_first: bool = False,
    succession: Succession | None = None,
) -> None:
    """Process the events of a batch. New facts come early, because nobody sees them before they are in gold.

    If its `succession` says that all messages are new, they are not searched for among those that are placed.

    In the first batch of a stream, the changes are the current state and don't show which merges were undone before.
    So `is_first` recomputes all facts in gold that were joined through a merge.
    """
    spark = batch.sparkSession
    with cached(batch) as events:
        with planned_for(spark, 0):
            found = summary_of(events, enrichment)
        if found.backfills and succession:  # a backfill places all that has landed
            succession.doubt()
        is_new = succession is not None and succession.is_new
        carry_out(settings, enrichment, events, found)
        concerns_placed = found.changed or found.released or is_first
        placed = placed_now(Lake(spark, settings), enrichment) if concerns_placed else None
        with planned_for(spark, found.events), writes_of(events, found.events):
            if found.facts:
                decide_new(settings, enrichment, events, found, is_new=is_new)
            if found.rejected:
                quarantine_rejected(settings, enrichment, events, found, is_new=is_new)
        if placed is not None:
            decide_again(settings, enrichment, events, found, placed, is_first=is_first)


def carry_out(settings: Settings, enrichment: Enrichment, events: DataFrame, found: Any) -> None:
    """Discard waiting facts, and do the backfills, that were asked for."""
    spark = events.sparkSession
    if found.discarded:
        with planned_for(spark, found.events):
            discard(settings, enrichment, events.where(is_event(DISCARD)).select("position").distinct())
    for request in found.backfills:
        do_requested(settings, enrichment, request, spark)


def enrich_messages(settings: Settings, enrichment: Enrichment, messages: DataFrame) -> None:
    """Place messages of the facts' topic as a separate batch, without changes of state or requests."""
    facts = messages.transform(decode_facts, enrichment=enrichment).transform(as_events, enrichment)
    no_backfill = F.lit(None).cast(BACKFILL_COLUMN).alias("backfill")
    enrich_batch(settings, enrichment, facts.transform(without_changes).select("*", no_backfill))


def decide_new(settings: Settings, enrichment: Enrichment, events: DataFrame, found: Any, *, is_new: bool) -> None:
    """Place the facts that are not placed yet: in gold, with the waiting facts, or with the duplicates."""
    facts = facts_among(events, enrichment)
    spark, keys = facts.sparkSession, list(enrichment.keys)
    pruning = pruning_filter(found.bounds, enrichment)
    look_up_state = partial(look_up, settings=settings, enrichment=enrichment, source=facts, number=found.facts)
    with ExitStack() as stack:
        if found.facts <= FEW:
            placed = placed_of(facts.select(keys), settings, enrichment, pruning)
        else:
            near = placed_keys(Lake(spark, settings), enrichment, pruning)
            placed = stack.enter_context(cached(near.join(facts.select(keys), on=keys, how="left_semi")))
        repeated = stack.enter_context(cached(repeated_keys(facts, placed=placed, keys=keys)))
        if not repeated.count():
            write_new(settings, enrichment, facts.transform(look_up_state), number=found.facts)
            return
        suspects = facts.join(repeated, on=keys, how="left_semi")
        found_duplicates = suspects.transform(
            find_duplicates, placed=placed, keys=keys, day=enrichment.day, dedup_days=enrichment.dedup_days
        )
        with cached(found_duplicates) as duplicates:
            if (number := duplicates.count()) < found.facts:
                fresh = facts.join(duplicates.select("position"), on="position", how="left_anti")
                write_new(settings, enrichment, fresh.transform(look_up_state), number=found.facts)
            if number:
                with interpreted_for(spark, number):
                    write_duplicates(settings, enrichment, duplicates, are_new=is_new)


class Placed(NamedTuple):
    """The facts in gold and the waiting ones at some moment."""

    gold: Pinned
    waiting: Pinned


def placed_now(lake: Lake, enrichment: Enrichment) -> Placed:
    gold, waiting = enrichment.gold_table, enrichment.waiting.name
    return Placed(gold=lake.table(gold).pin(), waiting=lake.table(waiting).pin())


def decide_again(
    settings: Settings, enrichment: Enrichment, events: DataFrame, found: Any, placed: Placed, *, is_first: bool
) -> None:
    """Recompute the placed facts that changes of state or releases affect, and write what differs.

    The batch's own new facts are not among `placed`: they were joined with state that has these changes. If the batch
    runs again, they are, with the same result.
    """
    spark, gold = events.sparkSession, placed.gold
    lookups = _changed_lookups(enrichment, found, is_first=is_first)
    corrects = bool(lookups) and not gold.is_known_empty
    if placed.waiting.is_known_empty and not corrects:
        return
    with ExitStack() as stack:
        with planned_for(spark, found.events):
            outdated = no_rows(gold, fact_columns(enrichment))
            if corrects:
                changes = events.where(is_event(CHANGE))
                corrections = changes.transform(corrections_by, lookups=lookups, settings=settings)
                corrections = stack.enter_context(cached(corrections))
                outdated = _outdated(settings, enrichment, gold, corrections, lookups)
                if is_first:
                    merged = merged_in(gold.rows, lookups=lookups, enrichment=enrichment)
                    outdated = outdated.union(merged).dropDuplicates(["position"])
                outdated = stack.enter_context(cached(outdated))
            waiting = rows_if_small(placed.waiting, settings)
            concerned = _concerned(waiting, events, found.events, outdated, enrichment, stack)
            if concerned is None:
                return
            number, bounds = bounds_of(concerned, enrichment)
        if number:
            with planned_for(spark, number):
                _write_again(settings, enrichment, gold, concerned, number, pruning_filter(bounds, enrichment))


def _write_again(
    settings: Settings, enrichment: Enrichment, gold: Pinned, concerned: DataFrame, number: int, pruning: Pruning
) -> None:
    """Recompute so many cached facts with today's state, and write what differs from their rows in gold."""
    if number <= FEW:
        keys, within = concerned.select(*enrichment.keys).toArrow(), pruning.within.ranges
        current = rows_of_keys(gold, settings, keys, within=within, near=pruning.rows)
    else:
        current = gold.rows.where(pruning.rows)
    facts = concerned.transform(with_current, gold=current, enrichment=enrichment)
    facts = facts.dropDuplicates(["position"])  # a MERGE fails on a position that damaged gold has twice
    wanted = facts.transform(look_up, settings, enrichment, source=concerned, number=number)
    with cached(wanted) as wanted:
        is_changed = is_corrected(enrichment)
        stop_if_difference_fails(enrichment, wanted, is_changed=is_changed)
        write_difference(settings, enrichment, wanted, pruning, is_changed=is_changed)


def _outdated(
    settings: Settings, enrichment: Enrichment, gold: Pinned, corrections: DataFrame, lookups: Sequence[Lookup]
) -> DataFrame:
    """The facts in gold that corrections concern."""
    used = (path.partition(".")[0] for lookup in lookups for path in lookup.paths)
    columns = list(dict.fromkeys((*fact_columns(enrichment), *used)))
    day, moment = first_outdated(corrections, enrichment)
    recent = rows_since(
        gold, settings, day=(enrichment.day, day), time=(enrichment.event_time, moment), columns=columns
    )
    return outdated_by(recent, corrections=corrections, lookups=lookups, enrichment=enrichment)


def _changed_lookups(enrichment: Enrichment, found: Any, *, is_first: bool) -> list[Lookup]:
    """The lookups whose changes can correct facts in gold."""
    return [
        each
        for each in enrichment.lookups
        if is_first or each.entity.name in (found.changed_versions if each.is_as_of else found.lost)
    ]


def _concerned(
    waiting: DataFrame, events: DataFrame, number: int, outdated: DataFrame, enrichment: Enrichment, stack: ExitStack
) -> DataFrame | None:
    """The facts to decide again, cached: those that wait for what so many events bring, and the outdated ones in gold.

    None if there are none, as it mostly is. Only otherwise, waiting facts are read as a whole.
    """
    positions = waiting_for(waiting, events=events, number=number, outdated=outdated, enrichment=enrichment)
    positions = stack.enter_context(cached(positions))
    if not (found := positions.count()):
        return None
    columns = fact_columns(enrichment)
    chosen = F.broadcast(positions) if found <= FEW else positions
    retried = stack.enter_context(cached(waiting.join(chosen, on="position", how="left_semi").select(*columns)))
    others = outdated.join(retried.select("position"), on="position", how="left_anti")
    concerned = retried.withColumn("is_waiting", F.lit(True)).union(others.select(*columns, F.lit(False)))
    return stack.enter_context(cached(concerned))


def quarantine_rejected(
    settings: Settings, enrichment: Enrichment, events: DataFrame, found: Any, *, is_new: bool
) -> None:
    """Quarantine rejected messages, except those that are placed already because older checks accepted them."""
    rejected = events.where(is_event(REJECTED))
    # Cached, and so a plan of its own: for the search, which can read much, code is generated.
    others = nullcontext(rejected) if is_new else cached(_not_placed(settings, enrichment, rejected, found))
    with others as rows, interpreted_for(rejected.sparkSession, found.rejected):
        quarantine_malformed(settings, enrichment.decoding, rows, are_new=is_new)


def _not_placed(settings: Settings, enrichment: Enrichment, rejected: DataFrame, found: Any) -> DataFrame:
    """The rejected messages that are in no table. The lowest ledger id among them limits the search."""
    spark, newer = rejected.sparkSession, F.col("position.ledger_id") >= found.rejected_since
    tables = (
        Lake(spark, settings).table(name).pin().rows.where(newer).select("position") for name in enrichment.places
    )
    placed = of_keys(reduce(DataFrame.union, tables), rejected.select("position"))
    return rejected.join(placed, on="position", how="left_anti")


def create_tables(lake: Lake, enrichment: Enrichment) -> None:
    gold = gold_of(lake, enrichment)
    refuse_other(lake, gold, FIXED, rebuild=gold.name)
    quarantine = (enrichment.waiting, enrichment.duplicates, enrichment.discarded, MALFORMED)
    tables = [gold, *quarantine, ACTIONS, BACKFILLS]
    create_tables_of(lake, enrichment.gold_table, tables)
    resolve(enrichment.checks, over=gold.schema, within=enrichment.topic.name)


def gold_of(lake: Lake, enrichment: Enrichment) -> Table:
    """The table of complete facts, with the columns that the tables of state have now."""
    held = {each.name: lake.table(each.table).schema for each in enrichment.lookups}
    states = {name: StructType([column for column in row if column.name not in VALID]) for name, row in held.items()}
    return enrichment.gold(states)
