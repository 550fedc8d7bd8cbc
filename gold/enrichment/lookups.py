"""Join facts with state: find the row for each lookup, and what a fact waits for if there is none."""

from collections.abc import Sequence
from functools import reduce

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from gold.enrichment.declaration import MISSING, Enrichment, Lookup
from gold.enrichment.survivors import merges_of, ways_of
from lakehouse.delta.tables import of_keys, pin_version
from lakehouse.settings import Settings
from lakehouse.spark.batches import FEW

VALID = ("valid_from", "valid_until")
LACKS = ("reason", "missing")
"""The columns that say what a fact lacks; NULL if it has all its state."""
CURRENT = "current"
"""The column with a fact's present row in gold as a struct, or NULL."""


def look_up(
    facts: DataFrame, settings: Settings, enrichment: Enrichment, *, source: DataFrame, number: int
) -> DataFrame:
    """Adds the states of all lookups, and what is missing.

    `source` is the frame that the facts come from, with at least their lookup keys. It is read again, so it should be
    cached. `number` is the number of facts, or an upper bound: it decides how they are joined.
    """
    for lookup in enrichment.lookups:
        version, state = pin_version(facts.sparkSession, settings, lookup.table)
        keys = source.select(F.col(lookup.on).alias("key"))
        ways = None
        if lookup.merged_into is not None:
            ways = ways_of(keys, merges=merges_of(state, version, lookup=lookup), limit=lookup.max_merges)
            if ways.num_rows:
                survivors = facts.sparkSession.createDataFrame(ways.select(["survivor"]))
                keys = keys.union(survivors)
        if number <= FEW:  # few facts must not cause a shuffle of a large state
            state = of_keys(state, F.broadcast(keys.withColumnRenamed("key", lookup.key)))
        facts = facts.transform(with_survivor, ways=ways, lookup=lookup)
        facts = facts.transform(with_state, state=state, lookup=lookup, event_time=enrichment.event_time)
    return facts.transform(with_missing, lookups=enrichment.lookups)


def with_survivor(facts: DataFrame, *, ways: pa.Table | None, lookup: Lookup) -> DataFrame:
    """Adds `_<name>_key`, the key whose state the fact is joined with, and `<name>_merged` if keys can merge.

    `ways` are the ways from all merged keys of the facts, as `ways_of` returns them; None if keys can't merge.
    """
    at, on = f"_{lookup.name}_key", F.col(lookup.on)
    if ways is None:
        return facts.withColumn(at, on)
    found = facts.sparkSession.createDataFrame(ways.rename_columns(["_key", "_survivor", lookup.merged]))
    if not ways.num_rows:  # an empty join would still cost a job
        return facts.withColumns({at: on, lookup.merged: F.lit(None).cast(found.schema[lookup.merged].dataType)})
    joined = facts.join(F.broadcast(found), on=on == F.col("_key"), how="left")
    return joined.withColumn(at, F.coalesce("_survivor", on)).drop("_key", "_survivor")


def with_state(facts: DataFrame, *, state: DataFrame, lookup: Lookup, event_time: str) -> DataFrame:
    """Adds the state's row as the struct `lookup.name`, and `no_<name>`: why it can't be used, or NULL.

    The struct is NULL if the state can't be used and is not required. If the latest state was purged, the fact keeps
    the state from its row in gold, if that row used the key.
    """
    at = F.col(f"_{lookup.name}_key")
    row = F.struct(*(name for name in state.columns if name not in VALID)).alias(lookup.name)
    validity = VALID if lookup.is_as_of else ()
    kind = state.schema[lookup.key].dataType
    is_merged = lookup.merges_into(kind).isNotNull() if lookup.merged_into is not None else F.lit(False)
    rows = state.select(F.col(lookup.key).alias("_key"), row, is_merged.alias("_is_merged"), *validity)
    matches = at == F.col("_key")
    if lookup.is_as_of:
        matches = matches & was_valid(F.col(event_time))
    joined = facts.join(rows, on=matches, how="left").drop("_key", *validity)
    if not lookup.is_as_of and CURRENT in facts.columns:
        current, is_purged = F.col(CURRENT), F.col("_is_purged")
        joined = joined.withColumn("_is_purged", F.col(lookup.name).isNull() & _was_used(at, lookup))
        joined = joined.withColumns(
            {name: F.when(is_purged, current[name]).otherwise(F.col(name)) for name in lookup.adds}
        )
    reason = _unusable(lookup, event_time)
    added = {f"no_{lookup.name}": reason}
    if not lookup.required:
        added[lookup.name] = F.when(reason.isNull(), F.col(lookup.name))
    return joined.withColumns(added).drop("_is_purged", "_is_merged")


def _unusable(lookup: Lookup, event_time: str) -> Column:
    """Why the state that was found can't be used, or NULL."""
    reason = F.when(F.col(lookup.name).isNull(), "missing").when(
        F.col(f"{lookup.name}.deleted_at") <= F.col(event_time), "deleted"
    )
    if lookup.merged_into is None:
        return reason
    too_long = f"merged through more than {lookup.max_merges} keys"
    is_circle = F.array_contains(lookup.merged, F.col(f"_{lookup.name}_key"))
    no_way = F.when(is_circle, "merged in a circle").otherwise(too_long)
    return F.when(F.col("_is_merged"), no_way).otherwise(reason)


def _was_used(key: Column, lookup: Lookup) -> Column:
    """Whether the fact's row in gold used the state of this key, or a merge of it."""
    current = F.col(CURRENT)
    is_used = current[lookup.name][lookup.key] == key
    if lookup.merged_into is not None:
        is_used = is_used | F.array_contains(F.coalesce(current[lookup.merged], F.array()), key)
    return F.coalesce(is_used, F.lit(False))


def with_missing(facts: DataFrame, *, lookups: Sequence[Lookup]) -> DataFrame:
    """Adds `reason` and `missing`: which required states can't be used, and their keys. NULL if all can."""
    lookups = [lookup for lookup in lookups if lookup.required]
    reasons = [F.col(f"no_{lookup.name}") for lookup in lookups]
    if not lookups:
        return facts.withColumns({"reason": F.lit(None).cast("string"), "missing": F.lit(None).cast(MISSING)})
    is_missing = reduce(Column.__or__, (reason.isNotNull() for reason in reasons))
    named = (F.concat(F.lit(f"{lookup.name} "), reason) for lookup, reason in zip(lookups, reasons, strict=True))
    states = (F.when(reason.isNotNull(), _needed(each, reason)) for each, reason in zip(lookups, reasons, strict=True))
    return facts.withColumns(
        {
            "reason": F.when(is_missing, F.concat_ws(", ", *named)),
            "missing": F.when(is_missing, F.array_compact(F.array(*states)).cast(MISSING)),
        }
    )


def _needed(lookup: Lookup, reason: Column) -> Column:
    """An element of `missing`."""
    return F.struct(
        F.lit(lookup.entity.name).alias("entity"),
        F.col(f"_{lookup.name}_key").cast("string").alias("key"),
        reason.alias("reason"),
        (F.col(lookup.merged) if lookup.merged_into else F.lit(None)).cast("array<string>").alias("merged"),
    )


def was_valid(moment: Column) -> Column:
    """Whether a version, or a change, was valid at a moment. A NULL `valid_from` or `valid_until` is an open end."""
    since, until = F.col("valid_from"), F.col("valid_until")
    return (since.isNull() | (since <= moment)) & (until.isNull() | (moment < until))


def is_corrected(enrichment: Enrichment) -> Column:
    """Whether the state that a fact should have differs from its row in gold.

    For an as_of lookup, another version differs. For a latest lookup, only another survivor, other merged keys, or no
    state instead of some, differ: newer state of the same key is not a correction.
    """
    current, same = F.col(CURRENT), F.lit(True)
    for lookup in enrichment.lookups:
        if lookup.is_as_of:
            same = same & current[lookup.name]["sequence"].eqNullSafe(F.col(lookup.name)["sequence"])
            continue
        if lookup.merged_into is not None or not lookup.required:
            same = same & current[lookup.name][lookup.key].eqNullSafe(F.col(lookup.name)[lookup.key])
        if lookup.merged_into is not None:
            same = same & current[lookup.merged].eqNullSafe(F.col(lookup.merged))
    return ~same
