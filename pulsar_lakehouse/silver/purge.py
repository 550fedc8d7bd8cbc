"""Remove deleted keys from the latest state once no older message of them is expected."""

from collections.abc import Iterable

from pyspark.sql import functions as F

from pulsar_lakehouse.silver.entity import Entity
from pulsar_lakehouse.spark.declared_sql import merged_key
from pulsar_lakehouse.spark.frames import cached
from pulsar_lakehouse.tables.direct import Merge
from pulsar_lakehouse.tables.lake import Lake


def purge(lake: Lake, entity: Entity, *, merges: Iterable[str] = ()) -> int:
    """Remove keys that were deleted more than `keep_deleted` days ago from the latest state; returns how many rows.

    `merges` are SQL over the row: the key that this one was merged into, or NULL. Merged keys and their survivors stay,
    because facts are joined through them. The history keeps its versions, because older facts are joined with them.
    """
    rows = lake.table(entity.table.name).read()
    gone = rows.where(entity.is_expired(F.col("deleted_at"), F.col("sequence.publish_time")))
    for into in merges:
        [key] = entity.keys
        survivor = merged_key(into, key, rows.schema[key].dataType)
        gone = gone.where(survivor.isNull()).join(rows.select(survivor.alias(key)), on=key, how="left_anti")
    with cached(gone.select(*entity.keys)) as gone:
        if count := gone.count():
            lake.writing(count, gone).table(entity.table.name).merge(gone, Merge(on=entity.keys, delete=True))
    return count
