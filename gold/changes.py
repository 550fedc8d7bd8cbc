"""Changes of state, and the facts that they concern: those that wait for it, and those in gold that it corrects."""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from gold.enrichment import Enrichment, Lookup, awaited_keys
from gold.judging import VALID, was_joined, was_valid, with_state, with_survivor
from gold.survivors import leading_to
from lakehouse.settings import Settings
from lakehouse.tables import pin_table

CHANGE = ("changed_entity", "changed_key", *VALID, "changed_at")
AT_LAST = "timestamp'9999-12-31 23:59:59.999'"


def changes_of(feed: DataFrame, *, lookup: Lookup) -> DataFrame:
    """The keys whose state has changed, and for which times: of a latest state for all, which is NULL.

    A latest state `is_gone` if its key was deleted or merged.
    """
    is_gone = F.lit(False) if lookup.is_as_of else F.col("deleted_at").isNotNull()
    if lookup.merged_into is not None and not lookup.is_as_of:
        is_gone = is_gone | lookup.merges_into.isNotNull()
    changed = feed.select(
        F.lit(lookup.entity).alias("changed_entity"),
        F.col(lookup.key).cast("string").alias("changed_key"),
        *(F.col(name) if lookup.is_as_of else F.lit(None).cast("timestamp").alias(name) for name in VALID),
        F.col("sequence.publish_time").alias("changed_at"),
        is_gone.alias("is_gone"),
        "_change_type",
    )
    # The rest of a history's changes are versions whose time ends where that of a new one begins.
    kinds = ("insert",) if lookup.is_as_of else ("insert", "update_postimage")
    is_ever = F.coalesce(F.col("valid_from") < F.col("valid_until"), F.lit(True))
    return changed.where(F.col("_change_type").isin(*kinds) & is_ever).drop("_change_type")


def corrections_by(changes: DataFrame, *, lookups: Iterable[Lookup], settings: Settings) -> DataFrame:
    """The changes of what is looked up that can give facts in gold another answer, with the name of the `lookup`.

    Of a history they are new versions; of a latest state, what takes it away from facts, by the key of those.
    """
    found = []
    for lookup in lookups:
        of_entity = changes.where(F.col("changed_entity") == lookup.entity)
        if lookup.is_as_of:
            corrections = of_entity.where("valid_from IS NOT NULL").select(*CHANGE)
        else:
            corrections = of_entity.where("is_gone").transform(losses_by, settings=settings, lookup=lookup)
        found.append(corrections.withColumn("lookup", F.lit(lookup.name)))
    return reduce(DataFrame.union, found)


def losses_by(changes: DataFrame, *, settings: Settings, lookup: Lookup) -> DataFrame:
    """The keys that have no usable latest state since these were deleted or merged, and the times of facts for which.

    They are these themselves, and those that were merged into them by whatever way.
    """
    state = pin_table(changes.sparkSession, settings, lookup.table)
    keys = changes.select(F.col("changed_key").cast(state.schema[lookup.key].dataType).alias("key")).distinct()
    if lookup.merged_into is not None:
        merges = state.select(F.col(lookup.key).alias("key"), lookup.merges_into.alias("into"))
        keys = leading_to(keys, merges=merges.where("into IS NOT NULL"))
    keys = keys.toDF(lookup.on)
    joined = {"state": state, "lookup": lookup, "occurred_at": "at_last"}
    judged = keys.withColumn("at_last", F.expr(AT_LAST)).transform(with_survivor, keys=keys, **joined)
    judged = judged.transform(with_state, **joined)
    merged = F.coalesce(lookup.merged, F.array()) if lookup.merged_into is not None else F.array()
    reason = F.col(f"no_{lookup.name}")
    lost = judged.where(reason.isNotNull()).select(
        F.lit(lookup.entity).alias("changed_entity"),
        F.col(lookup.on).cast("string").alias("changed_key"),
        F.when(reason == "deleted", F.col(lookup.name)["deleted_at"]).alias("valid_from"),
        F.lit(None).cast("timestamp").alias("valid_until"),
        F.explode(F.array_append(merged, F.col(f"_{lookup.name}_key")).cast("array<string>")).alias("by_key"),
    )
    by = changes.select(F.col("changed_key").alias("by_key"), "changed_at")
    same = lost.join(by, on="by_key").groupBy("changed_entity", "changed_key", *VALID)
    return same.agg(F.max("changed_at").alias("changed_at"))


def outdated_by(
    gold: DataFrame, *, corrections: DataFrame, lookups: Iterable[Lookup], enrichment: Enrichment
) -> DataFrame:
    """The facts in gold, as `held_facts`, that can have another answer now for when they occurred."""
    occurred_at = F.col(enrichment.occurred_at)
    late = F.make_dt_interval(F.lit(enrichment.correct_for))
    [[since]] = corrections.agg(
        F.to_date(F.min(F.greatest("valid_from", F.col("changed_at") - late))).cast("string")
    ).collect()
    used = []
    for lookup in lookups:
        by = F.lit(lookup.name)
        if lookup.is_as_of:
            keys = lookup.used_keys
            used.append(F.arrays_zip(F.array_repeat(by, F.size(keys)).alias("by"), keys.alias("key")))
        else:
            kind = gold.select(F.col(lookup.name)[lookup.key]).schema[0].dataType
            used.append(F.array(F.struct(by.alias("by"), F.col(lookup.on).cast(kind).cast("string").alias("key"))))
    recent = gold.where(F.col(enrichment.day) >= F.lit(since).cast("date"))
    by_key = recent.select(*held_facts(enrichment), F.explode(F.concat(*used)).alias("_used"))
    is_of_key = (F.col("_used.by") == corrections["lookup"]) & (F.col("_used.key") == F.col("changed_key"))
    in_time = was_valid(occurred_at) & (occurred_at > F.col("changed_at") - late)
    hit = by_key.join(corrections, on=is_of_key & in_time, how="left_semi").drop("_used")
    return hit.dropDuplicates(["position"])


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


def held_facts(enrichment: Enrichment) -> list[Column]:
    """Over gold's columns: its facts, as candidates to be judged again."""
    return [*map(F.col, (*enrichment.columns, "position", enrichment.day)), *known(enrichment)]


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
