"""All versions of each key, and when each of them was valid."""

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from silver.entity import Entity


def changeable(entity: Entity) -> list[str]:
    """The columns of a version that a message can change which comes after it."""
    return ["valid_until", *((*entity.values, "given") if entity.ignore_null_updates else ())]


def versions_of(changes: DataFrame, *, held: DataFrame, entity: Entity) -> DataFrame:
    """The versions that changes make, and those of their keys in `held`, the history, that they may have changed.

    `is_changed`: the row is new to the history, or differs from what the history has. `is_last`: it is the last version
    of its key, and came with this batch; with partial updates, whether or not it came with this batch.
    """
    key = entity.key
    touched = held.join(changes.groupBy(key).agg(F.min("sequence.event_time").alias("since")), on=key)
    as_held = F.struct(*changeable(entity)).alias("held")
    changes = changes.withColumn("is_given", F.lit(True))
    if entity.ignore_null_updates:
        given = F.array_compact(F.array(*(F.when(F.col(name).isNotNull(), name) for name in entity.values)))
        changes = changes.withColumn("given", given)
        # A version from before the entity was declared so has all its values from its own message.
        known = touched.select("*", as_held).withColumn("given", F.coalesce("given", given))
        said = {name: F.when(F.array_contains("given", name), F.col(name)) for name in entity.values}
        known = known.withColumns(said).withColumn("is_given", F.lit(True)).select(*changes.columns, "held")
    else:  # what has ended before the first of a key's changes stays as it is
        not_ended = F.col("valid_until").isNull() | (F.col("valid_until") >= F.col("since"))
        known = touched.where(not_ended).select(key, "sequence", as_held)
    # A message that is held already meets its own row here.
    others = [name for name in changes.columns if name not in (key, "sequence")]
    versions = (
        changes.unionByName(known, allowMissingColumns=True)
        .repartition(key)
        .groupBy(key, "sequence")
        .agg(*(_either(name).alias(name) for name in (*others, "held")))
    )
    if entity.ignore_null_updates:
        versions = versions.transform(with_older, entity=entity)
    following = F.lead("sequence").over(Window.partitionBy(key).orderBy("sequence"))
    valid = {"valid_from": F.col("sequence.event_time"), "valid_until": following["event_time"]}
    as_it_is = F.struct(*changeable(entity))
    return (
        versions.withColumns(valid)
        .withColumn("is_changed", F.col("held").isNull() | ~F.col("held").eqNullSafe(as_it_is))
        .withColumn("is_last", F.col("valid_until").isNull() & F.coalesce("is_given", F.lit(False)))
        .drop("held", "is_given")
    )


def with_older(versions: DataFrame, *, entity: Entity) -> DataFrame:
    """Each NULL as what the last version before it had, back to when the key was deleted. A delete has no values."""
    before = Window.partitionBy(entity.key).orderBy("sequence").rowsBetween(Window.unboundedPreceding, -1)
    life = F.count_if(F.col("deleted_at").isNotNull()).over(before)
    so_far = Window.partitionBy(entity.key, "_life").orderBy("sequence")
    said = {name: F.last(name, ignorenulls=True).over(so_far) for name in entity.values}
    values = {name: F.when(F.col("deleted_at").isNull(), value).otherwise(F.col(name)) for name, value in said.items()}
    return versions.withColumn("_life", life).withColumns(values).drop("_life")


def _either(name: str) -> Column:
    """Of a message and the row that is held of it: the value that either has. A column can be newer than the row."""
    if name == "given":
        return F.array_sort(F.array_distinct(F.flatten(F.collect_list(name))))
    return F.first(name, ignorenulls=True)
