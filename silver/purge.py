"""Forget deleted keys, once no older message of theirs is to be expected any more."""

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from lakehouse.settings import Settings
from lakehouse.tables import delta_table
from silver.entity import Entity


def purge(spark: SparkSession, settings: Settings, entity: Entity) -> int:
    """Remove the rows of keys deleted longer ago than `keep_deleted` from the latest state; returns how many.

    The history keeps its versions, as facts of the past are joined with them.
    """
    silver = delta_table(spark, settings, entity.table.name)
    is_expired = entity.is_expired(F.col("deleted_at"), F.col("sequence.publish_time"))
    count = silver.toDF().where(is_expired).count()
    if count:
        silver.delete(is_expired)
    return count
