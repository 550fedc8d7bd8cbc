"""Compute the versions of each key, and when each of them was valid."""

from collections.abc import Sequence
from functools import reduce

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, StructType

from pulsar_lakehouse.silver.entity import UNAVAILABLE, Entity
from pulsar_lakehouse.silver.given import columns_from, given_by, values_of
from pulsar_lakehouse.silver.truncations import NONE, Truncations
from pulsar_lakehouse.spark.comparing import is_same


def changeable(entity: Entity) -> list[str]:
    """The columns of a stored version that a message of a later batch can change."""
    return ["valid_until", *((*entity.values, "given") if entity.is_partial else ())]


def needed(entity: Entity) -> list[str] | None:
    """The columns of stored versions that `versions_of` needs; None if these are all."""
    return None if entity.is_partial else [*_identity(entity), *changeable(entity)]


def _identity(entity: Entity) -> list[str]:
    """What a stored version of whole updates keeps: its values are read only if a truncation may hide them."""
    return [*entity.keys, "sequence", *(["deleted_at"] if entity.topic.envelope else [])]


def versions_of(changes: DataFrame, *, stored: DataFrame, entity: Entity, truncations: Truncations = NONE) -> DataFrame:
    """The versions that `changes` make, and the `stored` ones, of the history, that they or `truncations` may change.

    `_is_changed`: the row is not in the history, or differs from it. `_has_new_values`: not only in when it was valid.
    `_is_last`: the row is the last version of its key and, without partial updates, came with this batch or is
    truncated by it. `_truncated_at`: when all keys were deleted after it, if there are truncations.
    """
    keys = list(entity.keys)
    touched = _touched(changes, stored, keys, truncations)
    as_stored = F.struct(*changeable(entity)).alias("_stored")
    changes = changes.withColumn("_is_given", F.lit(True))
    versions_with = _versions_with_partial if entity.is_partial else _versions_with_whole
    versions = versions_with(changes, touched.select("*", as_stored), entity, truncations)
    as_it_is, kind = F.struct(*changeable(entity)), stored.select(as_stored).schema["_stored"].dataType
    if truncations.known:
        truncated_at = truncations.time_after("sequence")
        ended = F.when(truncated_at.isNotNull(), F.greatest("sequence.event_time", truncated_at))
        versions = versions.withColumn("_truncated_at", ended)
    is_given = F.coalesce("_is_given", F.lit(False)) | F.lit(truncations.are_new)
    return (
        versions.withColumns({"valid_from": F.col("sequence.event_time"), "_replaced": _replaced(keys)})
        .withColumn("valid_until", _valid_until(entity, truncations))
        .withColumn("_is_changed", F.col("_stored").isNull() | ~is_same(F.col("_stored"), as_it_is, kind))
        .withColumn("_has_new_values", F.col("_stored").isNull() | ~_has_stored_values(entity, kind))
        .withColumn("_is_last", F.col("_replaced").isNull() & F.col(keys[0]).isNotNull() & is_given)
        .drop("_stored", "_is_given", "_replaced")
    )


def _touched(changes: DataFrame, stored: DataFrame, keys: Sequence[str], truncations: Truncations) -> DataFrame:
    """The stored versions of keys that change, and since when they do, as `_since`."""
    changed = changes.groupBy(*keys).agg(F.min("sequence.event_time").alias("_since"))
    if not truncations.are_new:
        return stored.join(changed, on=list(keys))
    since = F.least("_since", F.lit(truncations.since))
    return stored.where(F.col(keys[0]).isNotNull()).join(changed, on=list(keys), how="left").withColumn("_since", since)


def _versions_with_whole(changes: DataFrame, touched: DataFrame, entity: Entity, truncations: Truncations) -> DataFrame:
    """The versions of whole updates. Those that ended before the first change of their key stay as they are."""
    not_ended = F.col("valid_until").isNull() | (F.col("valid_until") >= F.col("_since"))
    known = touched.where(not_ended).select(*_identity(entity), "_stored")
    return _each_once(changes, known, entity).transform(truncations.beside)


def _versions_with_partial(
    changes: DataFrame, touched: DataFrame, entity: Entity, truncations: Truncations
) -> DataFrame:
    """The versions of partial updates, which get from older ones what they do not give. Any of them may change."""
    changes = changes.withColumn("given", given_by(entity)).drop(UNAVAILABLE)
    # A version from before `ignore_null_updates` was declared has all its values from its own message.
    known = touched.withColumn(UNAVAILABLE, F.lit(None).cast("ARRAY<STRING>"))
    known = known.withColumns({"given": F.coalesce("given", given_by(entity)), "_is_given": F.lit(True)})
    known = known.select(*changes.columns, "_stored")
    versions = _each_once(changes, known, entity).transform(truncations.beside)
    return versions.transform(with_older, entity=entity, truncations=truncations)


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


def _replaced(keys: Sequence[str]) -> Column:
    """The earliest event time of the versions that follow; NULL for the last one."""
    # In descending order, because a window that follows the row would be read again for each row.
    following = Window.partitionBy(*keys).orderBy(F.desc("sequence")).rowsBetween(Window.unboundedPreceding, -1)
    return F.min("sequence.event_time").over(following)


def _valid_until(entity: Entity, truncations: Truncations) -> Column:
    """When a version is replaced or deleted with all others, but not before it begins; NULL if it is still valid."""
    if not entity.topic.envelope:
        return F.when(F.col("_replaced").isNotNull(), F.greatest("valid_from", "_replaced"))
    ended = F.least("_replaced", "_truncated_at") if truncations.known else F.col("_replaced")
    is_truncation = F.col(entity.keys[0]).isNull()
    return F.when(is_truncation, F.col("valid_from")).when(ended.isNotNull(), F.greatest("valid_from", ended))


def with_older(versions: DataFrame, *, entity: Entity, truncations: Truncations = NONE) -> DataFrame:
    """Take what a version does not give from earlier ones of its key, but not for a delete, nor from before one."""
    before = Window.partitionBy(*entity.keys).orderBy("sequence").rowsBetween(Window.unboundedPreceding, -1)
    life = F.count_if(F.col("deleted_at").isNotNull()).over(before)
    if truncations.known:
        life = life + truncations.number_before("sequence")
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
