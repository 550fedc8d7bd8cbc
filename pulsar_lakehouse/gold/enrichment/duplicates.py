"""Find facts that repeat others."""

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F


def repeated_keys(facts: DataFrame, *, placed: DataFrame, keys: Sequence[str]) -> DataFrame:
    """The keys that more than one of the facts has, and those of `placed`: placed facts whose keys one of them has."""
    within = facts.groupBy(*keys).count().where("count > 1").select(*keys)
    return within.union(placed.select(*keys))


def find_duplicates(
    facts: DataFrame, *, placed: DataFrame, keys: Sequence[str], day: str, dedup_days: int
) -> DataFrame:
    """The facts that are not the first with their keys, with `duplicate_of`: the position of the first.

    A fact is a duplicate if its day is at most `dedup_days` from that of the first fact. Otherwise it is a first fact
    itself. `placed` are the keys, days and positions of facts that are already placed. A fact that is placed at its own
    position is returned too, because it was read again: its `duplicate_of` is NULL.
    """
    on = list(keys)
    first = F.struct("position", F.col(day).alias("day"))
    of_keys = facts.join(placed.groupBy(*on).agg(F.array_sort(F.collect_set(first)).alias("placed")), on=on, how="left")
    # Within one day, only the earliest fact can be a first one.
    of_day = F.min(F.struct("publish_time", "position")).over(Window.partitionBy(*on, day))
    of_days = F.collect_set(F.struct("of_day", day)).over(Window.partitionBy(*on))
    candidates = F.transform(
        F.array_sort("of_days"),
        lambda each: F.struct(each["of_day"]["position"].alias("position"), each[day].alias("day")),
    )

    def is_near(first: Column, day: Column) -> Column:
        return F.abs(F.date_diff(first["day"], day)) <= dedup_days

    def with_first(firsts: Column, fact: Column) -> Column:
        is_repeat = F.exists(firsts, lambda first: is_near(first, fact["day"]))
        return F.when(is_repeat, firsts).otherwise(F.array_append(firsts, fact))

    before = F.coalesce("placed", F.array())
    original = F.filter("firsts", lambda first: is_near(first, F.col(day)))[0]["position"]
    is_placed = F.exists(before, lambda each: each["position"] == F.col("position"))
    return (
        of_keys.withColumn("of_day", of_day)
        .withColumn("of_days", of_days)
        .withColumn("firsts", F.aggregate(candidates, before, with_first))
        .withColumns({"original": original, "is_placed": is_placed})
        .where(F.col("is_placed") | (F.col("original") != F.col("position")))
        .select(*facts.columns, F.when(~F.col("is_placed"), F.col("original")).alias("duplicate_of"))
    )
