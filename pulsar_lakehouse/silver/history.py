"""Compute the versions of each key, and when each of them was valid."""

from collections.abc import Sequence
from functools import reduce

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, StructType

from pulsar_lakehouse.silver.entity import UNAVAILABLE, Entity
from pulsar_lakehouse.silver.given import columns_from, given_by, values_of
from pulsar_lakehouse.spark.comparing import is_same


def changeable(entity: Entity) -> list[str]:
    """The columns of a stored version that a message of a later batch can change."""
    return ["valid_until", *((*entity.values, "given") if entity.is_partial else ())]


def needed(entity: Entity) -> list[str] | None:
    """The columns of stored versions that `versions_of` needs; None if these are all."""
    return None if entity.is_partial else [*entity.keys, "sequence", *changeable(entity)]


def versions_of(changes: DataFrame, *, stored: DataFrame, entity: Entity) -> DataFrame:
    """The versions that `changes` make, and the `stored` ones, of the history, that they may change.

    `_is_changed`: the row is not in the history, or differs from it. `_has_new_values`: not only in when it was valid.
    `_is_last`: the row is the last version of its key and, without partial updates, came with this batch.
    """
    keys = list(entity.keys)
    touched = stored.join(changes.groupBy(*keys).agg(F.min("sequence.event_time").alias("_since")), on=keys)
    as_stored = F.struct(*changeable(entity)).alias("_stored")
    changes = changes.withColumn("_is_given", F.lit(True))
    versions_with = _versions_with_partial if entity.is_partial else _versions_with_whole
    versions = versions_with(changes, touched.select("*", as_stored), entity)
    as_it_is, kind = F.struct(*changeable(entity)), stored.select(as_stored).schema["_stored"].dataType
    return (
        versions.withColumns({"valid_from": F.col("sequence.event_time"), "valid_until": _valid_until(keys)})
        .withColumn("_is_changed", F.col("_stored").isNull() | ~is_same(F.col("_stored"), as_it_is, kind))
        .withColumn("_has_new_values", F.col("_stored").isNull() | ~_has_stored_values(entity, kind))
        .withColumn("_is_last", F.col("valid_until").isNull() & F.coalesce("_is_given", F.lit(False)))
        .drop("_stored", "_is_given")
    )


def _versions_with_whole(changes: DataFrame, touched: DataFrame, entity: Entity) -> DataFrame:
    """The versions of whole updates. Those that ended before the first change of their key stay as they are."""
    not_ended = F.col("valid_until").isNull() | (F.col("valid_until") >= F.col("_since"))
    known = touched.where(not_ended).select(*entity.keys, "sequence", "_stored")
    return _each_once(changes, known, entity)


def _versions_with_partial(changes: DataFrame, touched: DataFrame, entity: Entity) -> DataFrame:
    """The versions of partial updates, which get from older ones what they do not give. Any of them may change."""
    changes = changes.withColumn("given", given_by(entity)).drop(UNAVAILABLE)
    # A version from before `ignore_null_updates` was declared has all its values from its own message.
    known = touched.withColumn(UNAVAILABLE, F.lit(None).cast("ARRAY<STRING>"))
    known = known.withColumns({"given": F.coalesce("given", given_by(entity)), "_is_given": F.lit(True)})
    known = known.select(*changes.columns, "_stored")
    return _each_once(changes, known, entity).transform(with_older, entity=entity)


def _each_once(changes: DataFrame, known: DataFrame, entity: Entity) -> DataFrame:
    """Changes and known versions. A message that the history has already becomes one with its own row."""
    keys = [*entity.keys, "sequence"]
    others = [name for name in changes.columns if name not in keys]
    all_versions = changes.unionByName(known, allowMissingColumns=True).repartition(*entity.keys)
    return all_versions.groupBy(*keys).agg(*(_either(name).alias(name) for name in (*others, "_stored")))


def _has_stored_values(entity: Entity, kind: DataType) -> Column:
    """Whether the values of a version are those of its row in the history, whose type of `_stored` is `kind`."""
    assert isinstance(kind, StructType)
    values = entity.values if entity.is_partial else ()  # others never change
    same = (is_same(F.col("_stored")[name], F.col(name), kind[name].dataType) for name in values)
    return reduce(Column.__and__, same, F.lit(True))


def _valid_until(keys: Sequence[str]) -> Column:
    """The earliest event time of the versions that follow, but not before the version's own; NULL for the last one."""
    # In descending order, because a window that follows the row would be read again for each row.
    following = Window.partitionBy(*keys).orderBy(F.desc("sequence")).rowsBetween(Window.unboundedPreceding, -1)
    event_time = F.col("sequence.event_time")
    replaced = F.min(event_time).over(following)
    return F.when(replaced.isNotNull(), F.greatest(event_time, replaced))


def with_older(versions: DataFrame, *, entity: Entity) -> DataFrame:
    """Take what a version does not give from earlier ones of its key, but not for a delete, nor from before one."""
    before = Window.partitionBy(*entity.keys).orderBy("sequence").rowsBetween(Window.unboundedPreceding, -1)
    life = F.count_if(F.col("deleted_at").isNotNull()).over(before)
    so_far = Window.partitionBy(*entity.keys, "_life").orderBy("sequence")
    is_deleted = F.col("deleted_at").isNotNull()
    said = (
        F.when(is_deleted, each.own).otherwise(F.last(each.own, ignorenulls=True).over(so_far)).alias(each.name)
        for each in values_of(entity)
    )
    filled = versions.withColumn("_life", life).withColumn("_said", F.struct(*said))
    return filled.withColumns(columns_from("_said", entity)).drop("_life", "_said")


def _either(name: str) -> Column:
    """The non-NULL value of message or stored row: a column added later is NULL in the stored row."""
    if name == "given":
        return F.array_sort(F.array_distinct(F.flatten(F.collect_list(name))))
    return F.first(name, ignorenulls=True)
