"""Merged keys: who stands for them in the end, through any number of merges, in whatever order those came."""

from functools import reduce

from pyspark.sql import DataFrame
from pyspark.sql import functions as F


def follow_merges(keys: DataFrame, *, merges: DataFrame) -> DataFrame:
    """The `key`s that were merged, with their `survivor` and `merged`, the keys on the way to it, themselves first.

    `merges` are pairs of `key` and `merged_into`. Where they go round in a circle, `survivor` is one of `merged`.
    Runs a small job for each link of the longest way; the work follows the number of merged keys, not of all.
    """
    ways = keys.join(merges, on="key").select("key", F.col("merged_into").alias("at"), F.array("key").alias("merged"))
    ended = []
    while True:
        ways = ways.localCheckpoint()
        if ways.isEmpty():
            break
        onward = merges.withColumnsRenamed({"key": "at", "merged_into": "next"})
        further = ways.join(onward, on="at", how="left")
        is_end = F.col("next").isNull() | F.array_contains("merged", F.col("at"))
        ended.append(further.where(is_end).select("key", F.col("at").alias("survivor"), "merged"))
        ways = further.where(~is_end).select(
            "key", F.col("next").alias("at"), F.array_append("merged", F.col("at")).alias("merged")
        )
    return reduce(DataFrame.union, ended, ways.select("key", F.col("at").alias("survivor"), "merged"))
