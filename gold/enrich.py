"""Join facts with the latest state, exactly once: each message ends in gold, or in one of the quarantine tables.

Nothing here relies on the checkpoint for that. Whatever a batch finds already placed (it was run before, and killed
half-way, or its checkpoint was lost) it leaves where it is.
"""

from contextlib import ExitStack
from functools import partial, reduce

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.readwriter import DataStreamWriter

from gold.backfill import do_requested
from gold.changes import (
    LOSS,
    answers,
    changes_of,
    corrections_by,
    held_facts,
    judged_again,
    known,
    outdated_by,
    waiting_for,
)
from gold.enrichment import ACTIONS, BACKFILLS, Enrichment
from gold.judging import VALID, decode_facts, facts_of, find_repeats, judge
from gold.placing import discard, near_to, place, write_duplicates
from lakehouse.batches import each_batch
from lakehouse.checkpoints import create_tables_of, sound_checkpoint
from lakehouse.decoding import MALFORMED, quarantine_malformed
from lakehouse.settings import Settings
from lakehouse.tables import POSITION, is_known_empty, kept, pin_table, read_table

NOTHING_ELSE = f"""
    changed_entity STRING, changed_key STRING, valid_from TIMESTAMP, valid_until TIMESTAMP, changed_at TIMESTAMP,
    loss {LOSS}, is_before BOOLEAN, action STRING, action_position {POSITION},
    backfill STRUCT<request: STRING, since: DATE, until: DATE, entity: STRING, key: STRING>
"""


def enrich(spark: SparkSession, settings: Settings, enrichment: Enrichment) -> DataStreamWriter:
    """The stream that places new facts, wakes those that wait for the state that just changed, and does what was asked.

    All come in one stream, so that they can't race: a batch joins with state at least as new as the changes it has
    seen, and a change that comes after finds the facts that this batch left waiting.
    """
    create_tables(spark, settings, enrichment)
    states = [lookup.table for lookup in enrichment.lookups]
    reads = [enrichment.topic.bronze_table, *states, ACTIONS.name, BACKFILLS.name]
    messages = spark.readStream.format("delta").load(settings.table_path(enrichment.topic.bronze_table))
    facts = messages.transform(decode_facts, enrichment=enrichment)
    changes = [
        spark.readStream.format("delta")
        .option("readChangeFeed", True)
        .load(settings.table_path(lookup.table))
        .transform(changes_of, lookup=lookup)
        for lookup in enrichment.lookups
    ]
    asked = (
        spark.readStream.format("delta")
        .load(settings.table_path(ACTIONS.name))
        .where(F.col("topic") == enrichment.topic.name)
        .select("action", F.col("position").alias("action_position"))
    )
    backfills = (
        spark.readStream.format("delta")
        .load(settings.table_path(BACKFILLS.name))
        .where((F.col("topic") == enrichment.topic.name) & (F.col("event") == "requested"))
        .select(F.struct("request", "since", "until", "entity", "key").alias("backfill"))
    )
    sources = [facts, *changes, asked, backfills]
    stream = reduce(lambda left, right: left.unionByName(right, allowMissingColumns=True), sources)

    def place_batch(batch: DataFrame, number: int) -> None:
        each_batch(partial(enrich_batch, settings, enrichment, is_first=number == 0))(batch, number)

    return (
        stream.writeStream.queryName(f"enrich {enrichment.topic.name}")
        .foreachBatch(place_batch)
        .option("checkpointLocation", sound_checkpoint(spark, settings, enrichment.gold_table, reads=reads))
    )


def enrich_batch(settings: Settings, enrichment: Enrichment, batch: DataFrame, *, is_first: bool = False) -> None:
    """Place the facts of a batch, and judge those again that its changes of state, or what was asked, concern.

    The first batch of a stream does not tell which merges were undone before it: its changes are state as it is.
    """
    spark = batch.sparkSession
    with ExitStack() as stack:
        rows = stack.enter_context(kept(batch))
        [seen] = rows.selectExpr(
            "min(message.position.ledger_id) FILTER (WHERE reason IS NOT NULL) AS rejected_since",
            "bool_or(action = 'discard') AS given_up",
            "collect_set(changed_entity) FILTER (WHERE valid_from IS NOT NULL) AS versions_of",
            "collect_set(changed_entity) FILTER (WHERE loss IS NOT NULL) AS losses_of",
            "collect_list(backfill) AS backfills",
        ).collect()
        if seen.rejected_since is not None:
            rejected = rows.where("reason IS NOT NULL")
            # By rules of before, some may have been placed.
            placed = placed_since(spark, settings, enrichment, seen.rejected_since)
            is_placed = F.col("message.position") == F.col("placed")
            quarantine_malformed(settings, enrichment.decoding, rejected.join(placed, on=is_placed, how="left_anti"))
        if seen.given_up:
            discard(
                settings,
                enrichment,
                rows.where("action = 'discard'").select(F.col("action_position").alias("position")).distinct(),
            )
        for request in seen.backfills:
            do_requested(settings, enrichment, request, spark)
        gold = pin_table(spark, settings, enrichment.gold_table)
        waiting = pin_table(spark, settings, enrichment.waiting.name)
        outdated = gold.where("false").select(*held_facts(enrichment))
        lookups = [
            each
            for each in enrichment.lookups
            if is_first or each.entity in (seen.versions_of if each.is_as_of else seen.losses_of)
        ]
        if lookups and not is_known_empty(spark, settings, enrichment.gold_table):
            corrections = rows.transform(corrections_by, lookups=lookups, settings=settings)
            late = {"corrections": stack.enter_context(kept(corrections)), "lookups": lookups, "all_merged": is_first}
            outdated = stack.enter_context(kept(gold.transform(outdated_by, **late, enrichment=enrichment)))
        to_wake = waiting.transform(waiting_for, changes=rows, outdated=outdated, enrichment=enrichment)
        woken = stack.enter_context(kept(to_wake))
        facts = facts_of(rows, enrichment)
        sources = [facts, woken, outdated]
        near = near_to(sources, enrichment)
        if near is None:
            return
        key = (*enrichment.keys, enrichment.day, "position")
        in_gold = gold.where(near()).select(*key, *known(enrichment))
        discarded = pin_table(spark, settings, enrichment.discarded.name)
        elsewhere = (table.where(near()).select(*key) for table in (waiting, discarded))
        placed = reduce(DataFrame.union, elsewhere, in_gold.drop("held", "was"))
        repeats = stack.enter_context(kept(facts.transform(find_repeats, held=placed, **enrichment.repeats)))
        fresh = facts.join(repeats.select("position"), on="position", how="left_anti")
        again = woken.transform(judged_again, outdated=outdated, in_gold=in_gold, columns=facts.columns)
        candidates = fresh.withColumn("is_waiting", F.lit(False)).unionByName(again, allowMissingColumns=True)
        judged = candidates.transform(judge, settings=settings, enrichment=enrichment, sources=sources)
        is_settled = F.col("missing_entity").isNull() & F.col("held").eqNullSafe(answers(enrichment))
        judged = stack.enter_context(kept(judged.withColumn("is_settled", is_settled)))
        place(settings, enrichment, judged, near)
        write_duplicates(settings, enrichment, repeats)


def enrich_messages(settings: Settings, enrichment: Enrichment, messages: DataFrame) -> None:
    """Place messages of the facts' topic as a batch of their own, in which nothing has changed or is asked for."""
    facts = messages.transform(decode_facts, enrichment=enrichment)
    nothing = messages.sparkSession.createDataFrame([], NOTHING_ELSE)
    enrich_batch(settings, enrichment, facts.unionByName(nothing, allowMissingColumns=True))


def placed_since(spark: SparkSession, settings: Settings, enrichment: Enrichment, ledger: int) -> DataFrame:
    """The positions, as `placed`, of facts in gold and its quarantine; the ledger skips the files of older ones."""
    tables = (pin_table(spark, settings, name).select("position") for name in enrichment.places)
    found = reduce(DataFrame.union, (table.where(F.col("position.ledger_id") >= ledger) for table in tables))
    return found.toDF("placed")


def create_tables(spark: SparkSession, settings: Settings, enrichment: Enrichment) -> None:
    states = {each.name: read_table(spark, settings, each.table).drop(*VALID).schema for each in enrichment.lookups}
    quarantine = (enrichment.waiting, enrichment.duplicates, enrichment.discarded, MALFORMED)
    tables = [enrichment.gold(states), *quarantine, ACTIONS, BACKFILLS]
    create_tables_of(spark, settings, enrichment.gold_table, tables)
