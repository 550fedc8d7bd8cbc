"""Merge a changelog into latest state. The result is the same whatever the order, the batches and the repeats."""

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.readwriter import DataStreamWriter

from lakehouse.decoding import MALFORMED, decode, quarantine_malformed
from lakehouse.settings import Settings
from lakehouse.tables import create_table, delta_table, kept, read_table, with_columns_of
from silver.entity import Entity


def merge(spark: SparkSession, settings: Settings, entity: Entity) -> DataStreamWriter:
    """The stream from an entity's bronze table into its silver table."""
    create_tables(spark, settings, entity)
    messages = spark.readStream.format("delta").load(settings.table_path(entity.topic.bronze_table))
    return (
        messages.writeStream.queryName(f"merge {entity.name}")
        .foreachBatch(lambda batch, _: merge_batch(settings, entity, batch))
        .option("checkpointLocation", settings.checkpoint_path(entity.table.name))
    )


def create_tables(spark: SparkSession, settings: Settings, entity: Entity) -> None:
    for table in (entity.table, MALFORMED):
        create_table(spark, settings, table)


def merge_batch(settings: Settings, entity: Entity, messages: DataFrame) -> None:
    """Bring the messages of one batch into silver, or into `quarantine.malformed`."""
    spark = messages.sparkSession
    decoded = messages.transform(decode_changes, entity=entity)
    # What is kept is a row a key, not one a message; rejected messages are few, and decoded once more.
    with kept(decoded.transform(latest_changes, entity=entity)) as latest:
        if not latest.where("is_rejected").isEmpty():
            quarantine_malformed(settings, entity.topic, decoded.where("reason IS NOT NULL"))
        changes = latest.where("NOT is_rejected").drop("is_rejected")
        held = read_table(spark, settings, entity.table.name)
        newer = changes.transform(newer_than, held=held, key=entity.key).transform(with_columns_of, held)
        if newer.isEmpty():  # a MERGE of nothing would still write a file
            return
        (
            delta_table(spark, settings, entity.table.name)
            .alias("held")
            .merge(newer.alias("new"), f"held.{entity.key} = new.{entity.key}")
            .whenMatchedUpdateAll()
            .whenNotMatchedInsertAll()
            .execute()
        )


def decode_changes(messages: DataFrame, *, entity: Entity) -> DataFrame:
    """Messages as rows of the silver table, with `message` and `reason`."""
    columns = {**entity.columns, "deleted_at": entity.deleted_at}
    decoded = messages.transform(decode, topic=entity.topic, columns=columns, reject=_unusable_key(entity))
    return decoded.withColumns(
        {
            entity.key: F.coalesce(entity.key, _message_key(entity)),
            "deleted_at": F.when(F.col("message.is_tombstone"), _event_time()).otherwise(F.col("deleted_at")),
            "sequence": F.struct(
                _event_time().alias("event_time"),
                "message.publish_time",
                "message.position.ledger_id",
                "message.position.entry_id",
                "message.position.batch_index",
            ),
        }
    )


def latest_changes(changes: DataFrame, *, entity: Entity) -> DataFrame:
    """The last change of each key, by sequence, as rows of the silver table; and one row for all that `is_rejected`."""
    row = F.struct(*entity.columns, "deleted_at", "sequence")
    is_rejected = F.col("reason").isNotNull()
    groups = (F.when(~is_rejected, F.col(entity.key)).alias("_key"), is_rejected.alias("is_rejected"))
    return changes.groupBy(*groups).agg(F.max_by(row, "sequence").alias("last")).select("last.*", "is_rejected")


def newer_than(changes: DataFrame, *, held: DataFrame, key: str) -> DataFrame:
    """The changes that `held` does not have yet. A MERGE of older ones would rewrite the files that they match."""
    known = held.select(key, F.col("sequence").alias("held"))
    joined = changes.join(known, on=key, how="left").where("held IS NULL OR sequence > held")
    return joined.select(*changes.columns)


def _event_time() -> Column:
    return F.coalesce("message.event_time", "message.publish_time")


def _message_key(entity: Entity) -> Column:
    return F.col("message.key").try_cast(entity.key_type)


def _unusable_key(entity: Entity) -> Column:
    given, key = F.col("message.key"), F.col(entity.key)
    return F.when(
        F.col("message.is_tombstone") & _message_key(entity).isNull(),
        F.concat(F.lit(f"tombstone whose message key is no {entity.key_type}: "), F.coalesce(given, F.lit("none"))),
    ).when(
        given.isNotNull() & key.isNotNull() & ~_message_key(entity).eqNullSafe(key),
        F.concat(F.lit("message key "), given, F.lit(f" is not the {entity.key}: "), key.cast("string")),
    )
