"""Find the facts that changes of state affect: waiting facts, and facts in gold that need a correction."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from functools import reduce

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_type

from pulsar_lakehouse.contracts.keys import key_text, key_values
from pulsar_lakehouse.gold.enrichment.declaration import Enrichment, Lookup, awaited_keys
from pulsar_lakehouse.gold.enrichment.events import CHANGE, LOSS, RELEASE, VALID, is_event
from pulsar_lakehouse.gold.enrichment.lookups import was_valid, with_state, with_survivor
from pulsar_lakehouse.gold.enrichment.match import Match
from pulsar_lakehouse.gold.enrichment.matches import is_overdue
from pulsar_lakehouse.gold.enrichment.survivors import leading_to, mapping_of, merges_of, ways_from
from pulsar_lakehouse.limits import FEW
from pulsar_lakehouse.spark.declared_sql import naming
from pulsar_lakehouse.spark.frames import frame_of
from pulsar_lakehouse.tables.lake import Lake

CHANGED = ("changed_entity", "changed_key", *VALID, "changed_at")
END_OF_TIME = "timestamp'9999-12-31 23:59:59.999'"


def changes_of(feed: DataFrame, *, lookup: Lookup) -> DataFrame:
    """The keys whose state has changed, and the times for which it changed.

    For a latest state, the times are NULL: the change holds for all times. If the state was deleted or merged, `loss`
    says when and into which key. If it was so before the change, that is another row, with `is_before`. If state is not
    required, a key that came has a `loss` without either, because facts without it are in gold.
    Raises ConfigurationError if Spark can't resolve the SQL of the lookup.
    """
    valid = (F.col(name) if lookup.is_as_of else F.lit(None).cast("timestamp").alias(name) for name in VALID)
    is_before = F.col("_change_type") == "update_preimage"
    declared = {} if lookup.merged_into is None else {f"lookup {lookup.name}: merged_into": lookup.merged_into}
    with naming(feed, declared):
        loss = F.lit(None).cast(LOSS) if lookup.is_as_of else _loss(lookup, feed)
        changed = feed.select(
            F.lit(lookup.entity.name).alias("changed_entity"),
            key_text([F.col(name) for name in lookup.entity.keys]).alias("changed_key"),
            *valid,
            F.col("sequence.publish_time").alias("changed_at"),
            loss.alias("loss"),
            is_before.alias("is_before"),
            F.col("_commit_version").alias("changed_in"),
            "_change_type",
        )
    # Other changes of a history only end versions where a new one begins, unless a version has values of older ones.
    only_inserts = lookup.is_as_of and not lookup.entity.is_partial
    kinds = ("insert",) if only_inserts else ("insert", "update_postimage")
    is_change = F.col("_change_type").isin(*kinds) | (F.col("is_before") & F.col("loss").isNotNull())
    is_ever = F.coalesce(F.col("valid_from") < F.col("valid_until"), F.lit(True))
    return changed.where(is_change & is_ever).drop("_change_type")


def _loss(lookup: Lookup, feed: DataFrame) -> Column:
    deleted_at = F.col("deleted_at")
    into = F.lit(None) if lookup.merged_into is None else lookup.merges_into(feed.schema[lookup.key].dataType)
    loss = F.struct(deleted_at.alias("deleted_at"), into.cast("string").alias("merged_into"))
    lost = F.when(deleted_at.isNotNull() | into.isNotNull(), loss)
    if lookup.required:
        return lost
    neither = F.struct(F.lit(None), F.lit(None)).cast(LOSS)
    return F.when(F.col("_change_type") == "insert", neither).otherwise(lost)


def corrections_by(changes: DataFrame, *, joins: Sequence[Lookup | Match], lake: Lake) -> DataFrame:
    """The changes that can alter the state of facts in gold, with the name of the `join`.

    For a history these are new versions. For a latest state these are deletes and merges, also undone ones, by the key
    that the facts have, and keys that came if the state is not required. For a match, these are all changes of rows.
    """
    corrections = []
    for join in joins:
        of_join = changes.where(
            F.col("changed_entity") == (join.awaited if isinstance(join, Match) else join.entity.name)
        )
        if isinstance(join, Match) or join.is_as_of:
            by_join = of_join.where("valid_from IS NOT NULL").select(*CHANGED)
        else:
            by_join = of_join.where("loss IS NOT NULL").transform(losses_by, lake=lake, lookup=join)
        corrections.append(by_join.withColumn("join", F.lit(join.name)))
    return reduce(DataFrame.union, corrections)


def losses_by(changes: DataFrame, *, lake: Lake, lookup: Lookup) -> DataFrame:
    """Keys without usable state, or with another survivor, and the fact times affected.

    `changes` are deletes, merges and undone merges. A key is affected if its merges lead through a changed key. If the
    state is not required, all these keys are affected at all times, as their facts in gold may lack it until now.
    """
    state = lake.table(lookup.table).pin()
    changed = _changed_keys(changes, lookup=lookup)
    kinds = [state.schema[name].dataType for name in lookup.entity.keys]
    keys, ways = changed.select(lookup.key_from(key_values(F.col("_by_key"), kinds)).alias("_own")), None
    if lookup.merged_into is not None:
        keys, ways = _leading_to(keys, merges_of(state, lookup=lookup), lookup=lookup)
    survivors = keys.transform(_with_survivor, ways=ways, state=state.rows, lookup=lookup)
    on_way = survivors.transform(_each_on_way, lookup=lookup).join(changed, on="_by_key")
    return (
        on_way.groupBy("changed_entity", "changed_key", "_deleted_at", "_is_lost")
        .agg(F.max("changed_at").alias("changed_at"), F.bool_or("_is_moved").alias("_is_moved"))
        .where("_is_lost OR _is_moved")
        .select(
            "changed_entity",
            "changed_key",
            F.when(~F.col("_is_moved"), F.col("_deleted_at")).alias("valid_from"),
            F.lit(None).cast("timestamp").alias("valid_until"),
            "changed_at",
        )
    )


def _changed_keys(changes: DataFrame, *, lookup: Lookup) -> DataFrame:
    """The keys whose deletion or merge changed, as `_by_key`; when, and whether facts of all times are affected.

    A commit that changes something else of a lost key has the same loss before and after. Commits are looked at one by
    one: facts can have been joined between two of them, of which the second undoes the first.
    """
    is_changed = F.count_if("is_before") != F.count_if(~F.col("is_before"))
    by_commit = changes.groupBy("changed_key", "loss", "changed_in").agg(
        is_changed.alias("_is_changed"), F.max("changed_at").alias("changed_at")
    )
    is_moved = F.bool_or(F.col("loss.merged_into").isNotNull()) if lookup.required else F.lit(True)
    by_key = by_commit.where("_is_changed").groupBy(F.col("changed_key").alias("_by_key"))
    return by_key.agg(F.max("changed_at").alias("changed_at"), is_moved.alias("_is_moved"))


def _leading_to(keys: DataFrame, merges: pa.Table, *, lookup: Lookup) -> tuple[DataFrame, pa.Table]:
    """All keys whose merges lead to one of `keys`, these included, and the ways from them."""
    kind = to_arrow_type(keys.schema["_own"].dataType)
    changed = keys.toArrow()["_own"].to_pylist()
    leading = list(leading_to(changed, merges=mapping_of(merges), limit=lookup.max_merges))
    all_keys = frame_of(keys.sparkSession, pa.table({"_own": pa.array(leading, kind)}))
    return all_keys, ways_from(leading, merges=merges, limit=lookup.max_merges)


def _with_survivor(keys: DataFrame, *, ways: pa.Table | None, state: DataFrame, lookup: Lookup) -> DataFrame:
    """Adds the survivor of each `_own`, with its state, and why that can't be used by all facts, or NULL.

    A state that is deleted at any time is so for a fact that occurs at the end of time.
    """
    return (
        keys.withColumns({f"_{lookup.name}_key": F.col("_own"), "_end_of_time": F.expr(END_OF_TIME)})
        .transform(with_survivor, ways=ways, lookup=lookup)
        .transform(with_state, state=state, lookup=lookup, event_time="_end_of_time")
    )


def _each_on_way(survivors: DataFrame, *, lookup: Lookup) -> DataFrame:
    """A row for each key on the way from an `_own` to its survivor, as `_by_key`, and whether that can be used."""
    reason = F.col(f"no_{lookup.name}")
    way = F.array_append(lookup.way, lookup.text_of(F.col(f"_{lookup.name}_key")))
    return survivors.select(
        F.lit(lookup.entity.name).alias("changed_entity"),
        lookup.text_of(F.col("_own")).alias("changed_key"),
        F.when(reason == "deleted", F.col(lookup.name)["deleted_at"]).alias("_deleted_at"),
        reason.isNotNull().alias("_is_lost"),
        F.explode(way).alias("_by_key"),
    )


def first_outdated(corrections: DataFrame, enrichment: Enrichment) -> tuple[str | None, str | None]:
    """The day and the time, as text, from which on facts can be outdated by the corrections; None if there are none."""
    # Whole minutes, because the batches of a minute then have the same generated code.
    since = F.date_trunc("minute", F.min(F.greatest("valid_from", F.col("changed_at") - _late(enrichment))))
    [[day, moment]] = corrections.agg(F.to_date(since).cast("string"), since.cast("string")).collect()
    return day, moment


def outdated_by(
    gold: DataFrame, *, corrections: DataFrame, joins: Sequence[Lookup | Match], enrichment: Enrichment
) -> DataFrame:
    """The facts in gold whose state may be another one after `corrections`."""
    event_time = F.col(enrichment.event_time)
    used = [F.struct(F.lit(each.name).alias("by"), each.own_key.alias("key")) for each in joins]
    by_key = gold.select(*fact_columns(enrichment), F.explode(F.array(*used)).alias("_used"))
    is_of_key = (F.col("_used.by") == corrections["join"]) & (F.col("_used.key") == F.col("changed_key"))
    in_time = was_valid(event_time) & (event_time > F.col("changed_at") - _late(enrichment))
    return by_key.join(corrections, on=is_of_key & in_time, how="left_semi").drop("_used").dropDuplicates(["position"])


def joined_by_others(gold: DataFrame, *, joins: Sequence[Lookup | Match], enrichment: Enrichment) -> DataFrame:
    """The facts in gold that were joined through a merge, or with a partner: by values that a row may have no more."""
    names = [each.name if isinstance(each, Match) else each.merged for each in joins if _is_by_other(each)]
    is_joined = (F.col(name).isNotNull() for name in names)
    return gold.where(reduce(Column.__or__, is_joined, F.lit(False))).select(*fact_columns(enrichment))


def _is_by_other(join: Lookup | Match) -> bool:
    return isinstance(join, Match) or join.merged_into is not None


def _late(enrichment: Enrichment) -> Column:
    return F.make_dt_interval(F.lit(enrichment.correction_days))


def waiting_for(
    waiting: DataFrame, *, events: DataFrame, number: int, outdated: DataFrame, enrichment: Enrichment
) -> DataFrame:
    """The `position` of waiting facts to retry: those with a changed key, and those of an older release.

    Those that were released are among them, and the `outdated` facts: if one of these waits, an earlier batch stopped
    while it moved the fact from gold to quarantine. Whether they wait at all is left open. `number` is the number of
    events.

    The changed key is a missing one, or one on the way to it: a merged one, or one of an earlier lookup. A fact that an
    older release put there does not say in `missing` what it waits for, or says a key that is NULL. A change does not
    retry a fact that has waited for more than `retry_days` days. One whose time to find a partner is over is retried,
    too.
    """
    # A fixed time, because a MERGE does not reuse a cached plan with current_timestamp(). A whole minute, the next one,
    # because the batches of a minute then have the same generated code.
    expired = datetime.now(UTC).replace(second=0, microsecond=0) + timedelta(-enrichment.retry_days, minutes=1)
    in_time = waiting.where(F.col("waiting_since") > F.lit(expired))
    by_state = in_time.select("position", enrichment.event_time, F.explode("missing").alias("_state"))
    awaited = F.inline(awaited_keys(F.col("_state"))).alias("_entity", "_key")
    by_key = by_state.select("position", enrichment.event_time, awaited)
    is_awaited = (F.col("changed_entity") == F.col("_entity")) & (F.col("changed_key") == F.col("_key"))
    changes = events.where(is_event(CHANGE)).select(*CHANGED)
    if number <= FEW:
        changes = F.broadcast(changes)
    else:  # facts wait for few of so many
        wanted = by_key.select("_entity", "_key").distinct()
        changes = changes.join(wanted, on=is_awaited, how="left_semi")
    is_hit = is_awaited & was_valid(F.col(enrichment.event_time))
    retried = by_key.join(changes, on=is_hit, how="left_semi").select("position")
    is_of_earlier_release = "missing IS NULL OR exists(missing, each -> each.key IS NULL AND each.via IS NULL)"
    others = [events.where(is_event(RELEASE)), outdated, waiting.where(is_of_earlier_release)]
    if enrichment.matches:
        others.append(waiting.where(is_overdue(enrichment.matches, enrichment.event_time)))
    return reduce(DataFrame.union, (rows.select("position") for rows in others), retried)


def fact_columns(enrichment: Enrichment) -> tuple[str, ...]:
    """The columns of the fact itself that gold and quarantine both have."""
    return (*enrichment.columns, "position", enrichment.day)
