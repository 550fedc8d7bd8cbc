"""Forget deleted keys, once no older message of theirs is to be expected any more."""

from collections.abc import Iterable

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from lakehouse.delta.tables import cached, delta_table
from lakehouse.settings import Settings
from silver.entity import Entity


def purge(spark: SparkSession, settings: Settings, entity: Entity, *, merges: Iterable[str] = ()) -> int:
    """Remove the rows of keys deleted longer ago than `keep_deleted` from the latest state; returns how many.

    By `merges`, SQL over the row, keys were merged into others. Those and these stay, as facts are joined by way of
    them. The history keeps its versions, as facts of the past are joined with them.
    """
    silver = delta_table(spark, settings, entity.table.name)
    rows = silver.toDF()
    gone = rows.where(entity.is_expired(F.col("deleted_at"), F.col("sequence.publish_time")))
    for into in merges:
        survivors = rows.select(F.expr(into).alias(entity.key))
        gone = gone.where(f"({into}) IS NULL").join(survivors, on=entity.key, how="left_anti")
    with cached(gone.select(entity.key)) as gone:
        count = gone.count()
        if count:
            same = f"held.`{entity.key}` = gone.`{entity.key}`"
            silver.alias("held").merge(gone.alias("gone"), same).whenMatchedDelete().execute()
    return count
