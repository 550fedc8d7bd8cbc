"""Find facts that repeat others."""

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from pulsar_lakehouse.gold.enrichment.declaration import Enrichment


def repeated_keys(facts: DataFrame, *, placed: DataFrame, keys: Sequence[str]) -> DataFrame:
    """The keys that more than one of the facts has, and those of `placed`: placed facts whose keys one of them has."""
    within = facts.groupBy(*keys).count().where("count > 1").select(*keys)
    return within.union(placed.select(*keys))


def find_duplicates(facts: DataFrame, *, placed: DataFrame, enrichment: Enrichment) -> DataFrame:
    """The facts that are not the first with their keys, with `duplicate_of`: the position of the first.

    `placed` are the keys, days and positions of facts that are already placed. A fact that is placed at its own
    position is returned too, because it was read again: its `duplicate_of` is NULL. For the facts with the same keys,
    this is what the code below does:

        firsts = placed
        for fact in facts:  # in the order of publish times
            if not any(is_near(first, fact) for first in firsts):  # at most `dedup_days` apart
                firsts.append(fact)
    """
    on, day = list(enrichment.keys), enrichment.day
    first = F.struct("position", F.col(day).alias("day"))
    firsts = placed.groupBy(*on).agg(F.array_sort(F.collect_set(first)).alias("_placed"))
    # Within one day, only the earliest fact can be a first one.
    of_day = F.min(F.struct("publish_time", "position")).over(Window.partitionBy(*on, day))
    of_days = F.collect_set(F.struct("_of_day", day)).over(Window.partitionBy(*on))
    candidates = F.transform(
        F.array_sort("_of_days"),
        lambda each: F.struct(each["_of_day"]["position"].alias("position"), each[day].alias("day")),
    )

    def is_near(first: Column, day: Column) -> Column:
        return F.abs(F.date_diff(first["day"], day)) <= enrichment.dedup_days

    def with_first(firsts: Column, fact: Column) -> Column:
        is_repeat = F.exists(firsts, lambda first: is_near(first, fact["day"]))
        return F.when(is_repeat, firsts).otherwise(F.array_append(firsts, fact))

    before = F.coalesce("_placed", F.array())
    original = F.filter("_firsts", lambda first: is_near(first, F.col(day)))[0]["position"]
    is_placed = F.exists(before, lambda each: each["position"] == F.col("position"))
    return (
        facts.join(firsts, on=on, how="left")
        .withColumn("_of_day", of_day)
        .withColumn("_of_days", of_days)
        .withColumn("_firsts", F.aggregate(candidates, before, with_first))
        .withColumns({"_original": original, "_is_placed": is_placed})
        .where(F.col("_is_placed") | (F.col("_original") != F.col("position")))
        .select(*facts.columns, F.when(~F.col("_is_placed"), F.col("_original")).alias("duplicate_of"))
    )
