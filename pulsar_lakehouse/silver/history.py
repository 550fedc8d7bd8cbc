"""Compute the versions of each key, and when each of them was valid."""

from collections.abc import Sequence
from functools import reduce

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, StructType

from pulsar_lakehouse.silver.entity import Entity
from pulsar_lakehouse.spark.comparing import is_same


def changeable(entity: Entity) -> list[str]:
    """The columns of a stored version that a message of a later batch can change."""
    return ["valid_until", *((*entity.values, "given") if entity.ignore_null_updates else ())]


def needed(entity: Entity) -> list[str] | None:
    """The columns of stored versions that `versions_of` needs; None if these are all."""
    return None if entity.ignore_null_updates else [*entity.keys, "sequence", *changeable(entity)]


def versions_of(changes: DataFrame, *, held: DataFrame, entity: Entity) -> DataFrame:
    """The versions that `changes` make, and the versions in `held`, the history, that they may change.

    `is_changed`: the row is not in the history, or differs from it. `has_new_values`: not only in when it was valid.
    `is_last`: the row is the last version of its key and, without partial updates, came with this batch.
    """
    keys = list(entity.keys)
    touched = held.join(changes.groupBy(*keys).agg(F.min("sequence.event_time").alias("since")), on=keys)
    as_held = F.struct(*changeable(entity)).alias("held")
    changes = changes.withColumn("is_given", F.lit(True))
    if entity.ignore_null_updates:
        given = F.array_compact(F.array(*(F.when(F.col(name).isNotNull(), name) for name in entity.values)))
        changes = changes.withColumn("given", given)
        # A version from before `ignore_null_updates` was declared has all its values from its own message.
        known = touched.select("*", as_held).withColumn("given", F.coalesce("given", given))
        said = {name: F.when(F.array_contains("given", name), F.col(name)) for name in entity.values}
        known = known.withColumns(said).withColumn("is_given", F.lit(True)).select(*changes.columns, "held")
    else:  # versions that ended before the first change of their key stay as they are
        not_ended = F.col("valid_until").isNull() | (F.col("valid_until") >= F.col("since"))
        known = touched.where(not_ended).select(*keys, "sequence", as_held)
    # A message that the history already has is grouped with its own row.
    others = [name for name in changes.columns if name not in (*keys, "sequence")]
    versions = (
        changes.unionByName(known, allowMissingColumns=True)
        .repartition(*keys)
        .groupBy(*keys, "sequence")
        .agg(*(_either(name).alias(name) for name in (*others, "held")))
    )
    if entity.ignore_null_updates:
        versions = versions.transform(with_older, entity=entity)
    as_it_is, kind = F.struct(*changeable(entity)), held.select(as_held).schema["held"].dataType
    return (
        versions.withColumns({"valid_from": F.col("sequence.event_time"), "valid_until": _valid_until(keys)})
        .withColumn("is_changed", F.col("held").isNull() | ~is_same(F.col("held"), as_it_is, kind))
        .withColumn("has_new_values", F.col("held").isNull() | ~_has_held_values(entity, kind))
        .withColumn("is_last", F.col("valid_until").isNull() & F.coalesce("is_given", F.lit(False)))
        .drop("held", "is_given")
    )


def _has_held_values(entity: Entity, kind: DataType) -> Column:
    """Whether the values of a version are those of its row in the history, whose type of `held` is `kind`."""
    assert isinstance(kind, StructType)
    values = entity.values if entity.ignore_null_updates else ()  # others never change
    same = (is_same(F.col("held")[name], F.col(name), kind[name].dataType) for name in values)
    return reduce(Column.__and__, same, F.lit(True))


def _valid_until(keys: Sequence[str]) -> Column:
    """The earliest event time of the versions that follow, but not before the version's own; NULL for the last one."""
    # In descending order, because a window that follows the row would be read again for each row.
    following = Window.partitionBy(*keys).orderBy(F.desc("sequence")).rowsBetween(Window.unboundedPreceding, -1)
    event_time = F.col("sequence.event_time")
    replaced = F.min(event_time).over(following)
    return F.when(replaced.isNotNull(), F.greatest(event_time, replaced))


def with_older(versions: DataFrame, *, entity: Entity) -> DataFrame:
    """Fill each NULL from earlier versions of the key, but not from before a delete. A delete itself is not filled."""
    before = Window.partitionBy(*entity.keys).orderBy("sequence").rowsBetween(Window.unboundedPreceding, -1)
    life = F.count_if(F.col("deleted_at").isNotNull()).over(before)
    so_far = Window.partitionBy(*entity.keys, "_life").orderBy("sequence")
    said = {name: F.last(name, ignorenulls=True).over(so_far) for name in entity.values}
    values = {name: F.when(F.col("deleted_at").isNull(), value).otherwise(F.col(name)) for name, value in said.items()}
    return versions.withColumn("_life", life).withColumns(values).drop("_life")


def _either(name: str) -> Column:
    """The non-NULL value of message or stored row: a column added later is NULL in the stored row."""
    if name == "given":
        return F.array_sort(F.array_distinct(F.flatten(F.collect_list(name))))
    return F.first(name, ignorenulls=True)
