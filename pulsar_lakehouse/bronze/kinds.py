"""Counts the messages of a topic that has several kinds."""

from collections.abc import Sequence
from functools import reduce

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from pulsar_lakehouse.contracts.decoding import Decoding, of_kind
from pulsar_lakehouse.contracts.topics import Topic
from pulsar_lakehouse.reconciliation import OTHER, Reconciliation
from pulsar_lakehouse.tables.lake import Lake


def reconcile_kinds(lake: Lake, topic: Topic, kinds: Sequence[Decoding]) -> Reconciliation:
    """Compare the messages of a topic with those of its kinds. It is a problem if one is of several kinds."""
    bronze = lake.table(topic.bronze_table).pin().rows
    names = [each.topic.name for each in kinds]
    tagged = (bronze.transform(of_kind, decoding=each).withColumn("kind", F.lit(each.topic.name)) for each in kinds)
    by_message = reduce(DataFrame.union, tagged).groupBy("position").agg(F.collect_list("kind").alias("kinds"))
    counts = (F.count_if(F.array_contains("kinds", name)).alias(name) for name in names)
    [[found, twice, *numbers]] = by_message.agg(F.count("*"), F.count_if(F.size("kinds") > 1), *counts).collect()
    landed = bronze.count()
    several = f"{twice:,} messages are of several kinds: let the `where` of each exclude the others"
    return Reconciliation(
        topic=topic.name,
        landed=landed,
        accounted={**dict(zip(names, numbers, strict=True)), OTHER: landed - found},
        problems=(several,) if twice else (),
    )
