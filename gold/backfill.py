"""Judge facts anew from bronze, those of some days or those that a key of state has touched, and replace what differs.

A backfill is asked for by a row of `gold.backfills` and done by the enrichment stream, between its batches: so it works
while that runs, and nothing else writes gold meanwhile. What it changed is a second row of that table.
"""

from collections import Counter
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from datetime import date
from functools import reduce
from typing import Any

from pyspark.sql import Column, DataFrame, Row, SparkSession
from pyspark.sql import functions as F

from gold.enrichment import BACKFILLS, Enrichment, awaited_keys
from gold.judging import decode_facts, facts_of, find_repeats, judge, was_joined
from gold.placing import near_to, place, remove, write_duplicates
from lakehouse.causes import cause_of, is_permanent
from lakehouse.decoding import MALFORMED, quarantine_malformed
from lakehouse.settings import Settings
from lakehouse.tables import append, delta_table, kept, pin_table, read_table, table_exists

NEVER, TWICE = "malformed, a duplicate, given up, or never landed", "there twice"
"""Why rows are taken out of gold before others are judged."""

TRIES = 5
"""Of a backfill that ends early for a reason that may pass."""


@dataclass(frozen=True, kw_only=True)
class Scope:
    """Which facts: those of the days from `since` to `until`, both included, or those that used a key of an entity."""

    since: date | None = None
    until: date | None = None
    entity: str | None = None
    key: str | None = None


@dataclass(frozen=True, kw_only=True)
class Difference:
    """What a backfill does to gold, in facts; and how many wait in the end."""

    unchanged: int
    changed: int
    added: int
    removed: int
    waiting: int


def do_requested(settings: Settings, enrichment: Enrichment, request: Row, spark: SparkSession) -> None:
    """Do a backfill and write down what it did, or why it could not be done; nothing if that was done before.

    What fails for a reason that may pass is raised, so that the batch is run again: it could be half done.
    """
    backfills = read_table(spark, settings, BACKFILLS.name)
    events = [row.event for row in backfills.where(F.col("request") == request.request).select("event").collect()]
    if "done" in events or "failed" in events:
        return
    scope = Scope(since=request.since, until=request.until, entity=request.entity, key=request.key)
    result: dict[str, Any] = {"topic": enrichment.topic.name, **request.asDict()}
    try:
        result |= {"event": "done", **asdict(backfill(spark, settings, enrichment, scope))}
    except Exception as error:
        # A request that can't be done must not stop the stream for ever. Airflow's steps have no retries of their own.
        is_final = is_permanent(error) or events.count("tried") >= TRIES - 1
        result |= {"event": "failed" if is_final else "tried", "note": cause_of(error)}
        if not is_final:
            _note(spark, settings, result)
            raise
    _note(spark, settings, result)


def _note(spark: SparkSession, settings: Settings, result: dict[str, Any]) -> None:
    columns = read_table(spark, settings, BACKFILLS.name).drop("at", "requested_by").schema
    rows = spark.createDataFrame([result], columns)
    append(rows.withColumn("at", F.current_timestamp()), settings, BACKFILLS.name)


def backfill(
    spark: SparkSession, settings: Settings, enrichment: Enrichment, scope: Scope, *, dry_run: bool = False
) -> Difference:
    """Bring gold and quarantine to what today's declarations and state make of the facts that landed.

    What was found to be a duplicate, was discarded or is malformed stays so. A message that breaks today's contract
    goes to `quarantine.malformed`; what never landed is removed. With `dry_run`, only the shadow of gold is written:
    its rows that would differ.
    """
    gold, waiting, discarded, duplicates, malformed, bronze = (
        pin_table(spark, settings, name)
        for name in (
            enrichment.gold_table,
            enrichment.waiting.name,
            enrichment.discarded.name,
            enrichment.duplicates.name,
            MALFORMED.name,
            enrichment.topic.bronze_table,
        )
    )
    in_scope = [table.where(is_meant(scope, enrichment, table)).select("position") for table in (gold, waiting)]
    placed = reduce(DataFrame.union, in_scope).distinct()
    decoded = bronze.transform(decode_facts, enrichment=enrichment)
    landed = facts_of(decoded, enrichment)
    is_meant_now = is_meant(scope, enrichment, landed) if scope.key is None else F.lit(False)
    elsewhere = [duplicates, discarded, malformed.where(F.col("topic") == enrichment.topic.name)]
    with ExitStack() as stack:
        # Also those that are placed in its days, but belong to others by today's declaration.
        facts = landed.join(placed.withColumn("is_placed", F.lit(True)), on="position", how="left")
        facts = facts.where(is_meant_now | F.col("is_placed")).drop("is_placed")
        for table in elsewhere:
            facts = facts.join(table.select("position"), on="position", how="left_anti")
        facts = stack.enter_context(kept(facts))
        touched = stack.enter_context(kept(facts.select("position").union(placed).distinct()))
        in_gold, in_waiting = (table.join(touched, on="position", how="left_semi") for table in (gold, waiting))
        near = near_to([facts, in_gold, in_waiting], enrichment)
        if near is None:
            if dry_run and table_exists(spark, settings, enrichment.shadow):
                delta_table(spark, settings, enrichment.shadow).delete()
            return Difference(unchanged=0, changed=0, added=0, removed=0, waiting=0)
        never = placed.join(facts.select("position"), on="position", how="left_anti")
        twice = (
            table.groupBy("position").count().where("count > 1").select("position") for table in (in_gold, in_waiting)
        )
        wrong = never.withColumn("reason", F.lit(NEVER))
        # Of a key, what is taken out could not be found again if this ended here.
        if scope.key is None:
            wrong = reduce(DataFrame.union, (table.withColumn("reason", F.lit(TWICE)) for table in twice), wrong)
        wrong = stack.enter_context(kept(wrong.groupBy("position").agg(F.min("reason").alias("reason"))))
        rightly = {"on": "position", "how": "left_anti"}
        held_in_gold, held_in_waiting = (table.join(wrong, **rightly) for table in (in_gold, in_waiting))
        fresh = facts.join(held_in_gold, **rightly).join(held_in_waiting, **rightly)
        keys = (*enrichment.keys, enrichment.day, "position")
        held = reduce(DataFrame.union, (table.where(near()).select(*keys) for table in (gold, waiting, discarded)))
        repeats = fresh.transform(find_repeats, held=held.join(wrong, **rightly), **enrichment.repeats)
        repeats = stack.enter_context(kept(repeats))
        known = (_row(enrichment).alias("held"), was_joined(enrichment).alias("was"))
        candidates = (
            facts.drop("publish_time")
            .join(repeats.select("position"), **rightly)
            .join(held_in_gold.select("position", *known), on="position", how="left")
            .join(held_in_waiting.select("position", F.lit(True).alias("is_waiting")), on="position", how="left")
            .withColumn("is_waiting", F.coalesce("is_waiting", F.lit(False)))
        )
        judged = candidates.transform(judge, settings=settings, enrichment=enrichment, sources=[facts])
        is_settled = F.col("missing_entity").isNull() & F.col("held").eqNullSafe(_row(enrichment))
        judged = stack.enter_context(kept(judged.withColumn("is_settled", is_settled)))
        gone = in_gold.join(wrong, on="position")
        difference = _difference(judged, gone.count())
        if dry_run:
            _write_shadow(settings, enrichment, judged, gone)
        else:
            broken = decoded.where("reason IS NOT NULL").join(
                never.select(F.col("position").alias("never")), on=F.col("message.position") == F.col("never")
            )
            quarantine_malformed(settings, enrichment.decoding, broken.drop("never"))
            remove(settings, [enrichment.gold_table, enrichment.waiting.name], wrong.select("position"))
            place(settings, enrichment, judged, near, at_once=True)
            write_duplicates(settings, enrichment, repeats)
        return difference


def is_meant(scope: Scope, enrichment: Enrichment, table: DataFrame) -> Column:
    """Whether a row of gold or of the waiting facts is meant."""
    if scope.key is None:
        day = F.col(enrichment.day)
        since, until = (F.coalesce(F.lit(end).cast("date"), day) for end in (scope.since, scope.until))
        return day.between(since, until)
    lookups = [lookup for lookup in enrichment.lookups if lookup.entity == scope.entity]
    used = [F.col(lookup.on).cast("string") == scope.key for lookup in lookups]
    if "missing_key" in table.columns:
        used.append((F.col("missing_entity") == scope.entity) & F.array_contains(awaited_keys(), F.lit(scope.key)))
    else:
        used += [F.array_contains(lookup.used_keys, F.lit(scope.key)) for lookup in lookups]
    return F.coalesce(reduce(Column.__or__, used), F.lit(False))


def _row(enrichment: Enrichment) -> Column:
    """All of a row of gold."""
    return F.struct(*enrichment.gold_columns)


def _kind() -> Column:
    """Over judged facts: what becomes of each in gold."""
    is_held, is_complete = F.col("held").isNotNull(), F.col("missing_entity").isNull()
    kind = F.when(F.col("is_settled"), "unchanged").when(is_held & is_complete, "changed")
    return kind.when(is_complete, "added").when(is_held, "removed").otherwise("waiting")


def _difference(judged: DataFrame, gone: int) -> Difference:
    found = Counter({row.kind: row["count"] for row in judged.groupBy(_kind().alias("kind")).count().collect()})
    return Difference(
        unchanged=found["unchanged"],
        changed=found["changed"],
        added=found["added"],
        removed=found["removed"] + gone,
        waiting=found["removed"] + found["waiting"],
    )


def _write_shadow(settings: Settings, enrichment: Enrichment, judged: DataFrame, gone: DataFrame) -> None:
    """The rows of gold that would differ, as they are and as they would be."""
    names = (*enrichment.keys, enrichment.day, "position")
    row, kind = _row(enrichment), _kind()
    differs = (F.when(~F.col("held")[name].eqNullSafe(F.col(name)), name) for name in enrichment.gold_columns)
    changed = judged.where(kind.isin("changed", "added", "removed")).select(
        *names,
        kind.alias("difference"),
        F.when(kind == "removed", F.concat_ws(" ", "reason", "missing_entity", "missing_key")).alias("reason"),
        F.when(kind == "changed", F.array_compact(F.array(*differs))).alias("columns"),
        F.col("held").alias("before"),
        F.when(F.col("missing_entity").isNull(), row).alias("after"),
    )
    removed = gone.select(*names, F.lit("removed").alias("difference"), "reason", row.alias("before"))
    rows = changed.unionByName(removed, allowMissingColumns=True)
    path = settings.table_path(enrichment.shadow)
    rows.write.format("delta").mode("overwrite").option("overwriteSchema", True).save(path)
