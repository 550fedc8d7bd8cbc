"""Join facts with the latest state, exactly once: each message ends in gold, or in one of the quarantine tables.

Nothing here relies on the checkpoint for that. Whatever a batch finds already placed (it was run before, and killed
half-way, or its checkpoint was lost) it leaves where it is.
"""

from collections.abc import Sequence
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from functools import partial, reduce

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.readwriter import DataStreamWriter

from gold.backfill import do_requested
from gold.enrichment import ACTIONS, BACKFILLS, Enrichment, Lookup, awaited_keys
from gold.judging import VALID, decode_facts, facts_of, find_repeats, judge, was_joined, was_valid
from gold.placing import discard, near_to, place, write_duplicates
from lakehouse.batches import each_batch
from lakehouse.decoding import MALFORMED, quarantine_malformed
from lakehouse.settings import Settings
from lakehouse.tables import POSITION, create_table, kept, pin_table, read_table

CHANGE = ("changed_entity", "changed_key", *VALID, "changed_at")
NOTHING_ELSE = f"""
    changed_entity STRING, changed_key STRING, valid_from TIMESTAMP, valid_until TIMESTAMP, changed_at TIMESTAMP,
    action STRING, action_position {POSITION},
    backfill STRUCT<request: STRING, since: DATE, until: DATE, entity: STRING, key: STRING>
"""


def enrich(spark: SparkSession, settings: Settings, enrichment: Enrichment) -> DataStreamWriter:
    """The stream that places new facts, wakes those that wait for the state that just changed, and does what was asked.

    All come in one stream, so that they can't race: a batch joins with state at least as new as the changes it has
    seen, and a change that comes after finds the facts that this batch left waiting.
    """
    create_tables(spark, settings, enrichment)
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
    return (
        stream.writeStream.queryName(f"enrich {enrichment.topic.name}")
        .foreachBatch(each_batch(partial(enrich_batch, settings, enrichment)))
        .option("checkpointLocation", settings.checkpoint_path(enrichment.gold_table))
    )


def changes_of(feed: DataFrame, *, lookup: Lookup) -> DataFrame:
    """The keys whose state has changed, and for which times: of a latest state for all, which is NULL."""
    changed = feed.select(
        F.lit(lookup.entity).alias("changed_entity"),
        F.col(lookup.key).cast("string").alias("changed_key"),
        *(F.col(name) if lookup.is_as_of else F.lit(None).cast("timestamp").alias(name) for name in VALID),
        F.col("sequence.publish_time").alias("changed_at"),
        "_change_type",
    )
    # The rest of a history's changes are versions whose time ends where that of a new one begins.
    kinds = ("insert",) if lookup.is_as_of else ("insert", "update_postimage")
    is_ever = F.coalesce(F.col("valid_from") < F.col("valid_until"), F.lit(True))
    return changed.where(F.col("_change_type").isin(*kinds) & is_ever).drop("_change_type")


def enrich_batch(settings: Settings, enrichment: Enrichment, batch: DataFrame) -> None:
    """Place the facts of a batch, and judge those again that its changes of state, or what was asked, concern."""
    spark = batch.sparkSession
    with ExitStack() as stack:
        rows = stack.enter_context(kept(batch))
        [seen] = rows.selectExpr(
            "min(message.position.ledger_id) FILTER (WHERE reason IS NOT NULL) AS rejected_since",
            "bool_or(action = 'discard') AS given_up",
            "string(to_date(min(valid_from))) AS changed_since",
            "collect_list(backfill) AS backfills",
        ).collect()
        if seen.rejected_since is not None:
            rejected = rows.where("reason IS NOT NULL")
            # By rules of before, some may have been placed.
            placed = placed_since(spark, settings, enrichment, seen.rejected_since)
            is_placed = F.col("message.position") == F.col("placed")
            quarantine_malformed(settings, enrichment.topic, rejected.join(placed, on=is_placed, how="left_anti"))
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
        recent = gold.where(F.col(enrichment.day) >= F.lit(seen.changed_since).cast("date"))
        outdated = stack.enter_context(kept(recent.transform(outdated_by, changes=rows, enrichment=enrichment)))
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
        is_settled = F.col("held").eqNullSafe(answers(enrichment))
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


def outdated_by(gold: DataFrame, *, changes: DataFrame, enrichment: Enrichment) -> DataFrame:
    """The facts in gold, with `held` and `was`, for which the state has changed as of when they occurred."""
    occurred_at = F.col(enrichment.occurred_at)
    facts = [*map(F.col, (*enrichment.columns, "position", enrichment.day)), *known(enrichment)]
    found = [gold.where("false").select(*facts)]
    for lookup in enrichment.lookups:
        if lookup.is_as_of:
            by_key = gold.select(*facts, F.explode(lookup.used_keys).alias("used_key"))
            late = F.make_dt_interval(F.lit(enrichment.correct_for))
            changed = changes.select(*CHANGE).where(F.col("changed_entity") == lookup.entity)
            is_hit = (F.col("used_key") == F.col("changed_key")) & was_valid(occurred_at)
            in_time = occurred_at > F.col("changed_at") - late
            found.append(by_key.join(changed, on=is_hit & in_time, how="left_semi").drop("used_key"))
    every = reduce(DataFrame.union, found)
    return every.dropDuplicates(["position"])


def waiting_for(waiting: DataFrame, *, changes: DataFrame, outdated: DataFrame, enrichment: Enrichment) -> DataFrame:
    """The waiting facts that were released, or for which a key has changed: the missing one, or a merged one before it.

    A change does not wake what has waited for more than `give_up_after` days. One that is among the `outdated` ones
    was on its way from there to here when a batch ended early.
    """
    # A fixed time: of a plan with the current one, a MERGE does not see that it is kept.
    in_time = waiting.where(F.col("waiting_since") > F.lit(datetime.now(UTC) - timedelta(enrichment.give_up_after)))
    awaited = F.explode(awaited_keys()).alias("awaited")
    by_key = in_time.select("position", enrichment.occurred_at, "missing_entity", awaited)
    is_awaited = (F.col("changed_entity") == F.col("missing_entity")) & (F.col("changed_key") == F.col("awaited"))
    # The batch's changes are many, those that anything waits for few.
    wanted = by_key.select("missing_entity", "awaited").distinct()
    found = changes.select(*CHANGE).where("changed_key IS NOT NULL").join(wanted, on=is_awaited, how="left_semi")
    is_hit = is_awaited & was_valid(F.col(enrichment.occurred_at))
    woken = by_key.join(found, on=is_hit, how="left_semi").select("position")
    released = changes.where("action = 'release'").select(F.col("action_position").alias("position"))
    return waiting.join(woken.union(released).union(outdated.select("position")), on="position", how="left_semi")


def judged_again(woken: DataFrame, *, outdated: DataFrame, in_gold: DataFrame, columns: Sequence[str]) -> DataFrame:
    """Woken and outdated facts as candidates. Woken ones can be in gold too, if a batch ended before it was done."""
    held = in_gold.select("position", "held", "was")
    waiting = woken.join(held, on="position", how="left").withColumn("is_waiting", F.lit(True))
    others = outdated.join(woken.select("position"), on="position", how="left_anti")
    both = waiting.unionByName(others.withColumn("is_waiting", F.lit(False)), allowMissingColumns=True)
    return both.select(*(name for name in columns if name != "publish_time"), "held", "was", "is_waiting")


def known(enrichment: Enrichment) -> tuple[Column, Column]:
    """Over gold's columns: `held`, the answers that a fact has there, and `was`, the latest states."""
    return answers(enrichment).alias("held"), was_joined(enrichment).alias("was")


def answers(enrichment: Enrichment) -> Column:
    """Which state a fact is joined with, as far as that can be corrected."""
    parts = [F.lit(True).alias("in_gold")]
    for lookup in enrichment.lookups:
        if lookup.is_as_of:
            parts.append(F.col(lookup.name)["sequence"].alias(lookup.name))
            if lookup.merged_into:
                parts.append(F.col(lookup.merged))
    return F.struct(*parts)


def create_tables(spark: SparkSession, settings: Settings, enrichment: Enrichment) -> None:
    states = {each.name: read_table(spark, settings, each.table).drop(*VALID).schema for each in enrichment.lookups}
    quarantine = (enrichment.waiting, enrichment.duplicates, enrichment.discarded, MALFORMED)
    for table in (enrichment.gold(states), *quarantine, ACTIONS, BACKFILLS):
        create_table(spark, settings, table)
