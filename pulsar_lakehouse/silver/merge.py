"""Merge a changelog into latest state. Order, batch boundaries and repeated messages do not change the result."""

from collections.abc import Sequence
from functools import partial

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.streaming.readwriter import DataStreamWriter

from pulsar_lakehouse.checkpoints.soundness import create_tables_of, sound_checkpoint
from pulsar_lakehouse.contracts.checks import Mode, failed, of_mode, resolve, stop_if_failed
from pulsar_lakehouse.contracts.decoding import JUDGED, MALFORMED, decode
from pulsar_lakehouse.contracts.keys import key_text, key_values
from pulsar_lakehouse.contracts.malformed import is_same_row, quarantine_malformed
from pulsar_lakehouse.errors import ConfigurationError
from pulsar_lakehouse.limits import FEW
from pulsar_lakehouse.silver.entity import FIXED, OCCURRED_AT, SNAPSHOT, UNAVAILABLE, Entity
from pulsar_lakehouse.silver.history import changeable, needed, versions_of
from pulsar_lakehouse.silver.truncations import is_truncation, state_of, truncations_of
from pulsar_lakehouse.spark.batches import each_batch
from pulsar_lakehouse.spark.comparing import is_same
from pulsar_lakehouse.spark.declared_sql import shown
from pulsar_lakehouse.spark.frames import cached, of_keys
from pulsar_lakehouse.tables.declared import Table
from pulsar_lakehouse.tables.definitions import rebuild_command, refuse_other
from pulsar_lakehouse.tables.lake import Lake
from pulsar_lakehouse.tables.reading import rows_of_keys


def merge(lake: Lake, entity: Entity) -> DataStreamWriter:
    """The stream from an entity's bronze table into its silver tables."""
    create_tables(lake, entity)
    bronze = entity.topic.bronze_table
    checkpoint = sound_checkpoint(lake, entity.table.name, reads=[bronze])
    # Rows only change when messages are erased, also from silver.
    messages = lake.table(bronze).stream(
        skipChangeCommits=True, maxBytesPerTrigger=lake.settings.run.max_bytes_per_batch
    )
    return messages.writeStream.foreachBatch(each_batch(partial(merge_batch, lake, entity))).option(
        "checkpointLocation", checkpoint
    )


def create_tables(lake: Lake, entity: Entity) -> None:
    silver = [entity.table, *([entity.history] if entity.keeps_history else [])]
    for table in silver:
        _check_order(lake, entity, table)
        refuse_other(lake, table, FIXED, rebuild=entity.table.name)
    create_tables_of(lake, entity.table.name, [*silver, MALFORMED])
    resolve(of_mode(entity.checks_of_rows, Mode.QUARANTINE), over=entity.decoding.schema, within=entity.name)
    resolve(entity.checks_of_rows, over=entity.table.schema, within=entity.name)


def _check_order(lake: Lake, entity: Entity, table: Table) -> None:
    """Raises ConfigurationError if the table exists and has another order than the declared one."""
    if not lake.table(table.name).is_created():
        return
    present, declared = (each.schema["sequence"].dataType.simpleString() for each in (lake.table(table.name), table))
    if present != declared:
        raise ConfigurationError(
            f"{entity.name}: sequence_by {', '.join(entity.ordered_by) or 'nothing'}: {table.name} has the sequence "
            f"{present}: keep its order, or run `{rebuild_command([entity.table.name])}`"
        )


def merge_batch(lake: Lake, entity: Entity, messages: DataFrame) -> None:
    """Merge the messages of one batch into silver. Rejected messages go to `quarantine.malformed`.

    Raises PermanentError if a check stops it: then nothing is merged.
    """
    lake = lake.within(messages)
    decoded = messages.transform(decode_changes, entity=entity)
    rejected_message = F.when(F.col("reason").isNotNull(), F.col("message"))  # accepted messages need only their row
    with cached(decoded.withColumn("message", rejected_message)) as rows:
        with lake.sized(0):
            truncates = F.count_if(F.col("reason").isNull() & is_truncation(entity))
            [[number, rejected, truncated]] = rows.agg(F.count("*"), F.count("reason"), truncates).collect()
        with lake.sized(number, rows) as sized:
            if rejected:
                _quarantine(sized, entity, rows.where("reason IS NOT NULL"))
            if number > rejected:
                changes = rows.where("reason IS NULL").drop("message", "reason")
                _merge_changes(sized, entity, changes, number, truncates=truncated > 0)


def _quarantine(lake: Lake, entity: Entity, rejected: DataFrame) -> None:
    if entity.keeps_history:  # after a lost checkpoint, messages return that were merged under an older contract
        merged = lake.table(entity.history.name).pin().rows.select(place(entity).alias("_merged"))
        is_merged = is_same_row(F.col("_place"), F.col("_merged"), entity.topic)
        rejected = rejected.select("*", place(entity)).join(merged, on=is_merged, how="left_anti")
    quarantine_malformed(lake, entity.decoding, rejected)


def _merge_changes(lake: Lake, entity: Entity, changes: DataFrame, number: int, *, truncates: bool) -> None:
    keys = changes.select(*entity.keys)
    few = keys.toArrow() if number <= FEW and not truncates else None

    def stored_in(name: str, columns: Sequence[str] | None = None) -> DataFrame:
        table = lake.table(name).pin()
        return table.rows if few is None else rows_of_keys(table, few, columns=columns)

    if entity.keeps_history:
        stored = stored_in(entity.history.name, needed(entity))
        truncations = truncations_of(lake, changes, entity, truncates=truncates)
        changes = changes.transform(truncations.without_stored)
        versions = changes.transform(versions_of, stored=stored, entity=entity, truncations=truncations)
    else:
        states = {"_is_changed": F.lit(False), "_has_new_values": F.lit(False), "_is_last": F.lit(True)}
        versions = changes.transform(latest_changes, keys=entity.keys).withColumns(states)
    latest = stored_in(entity.table.name)
    if few is None and not truncates:
        latest = of_keys(latest, keys)
    columns = [each for each in changes.columns if each != UNAVAILABLE]
    row, is_truncated = F.struct(*columns), "_truncated_at" in versions.columns
    latest = latest.select(*entity.keys, F.col("sequence").alias("_latest"), row.alias("_latest_row"))
    state = F.struct(*state_of(entity, columns)) if is_truncated else row
    is_newer = F.col("_latest").isNull() | (F.col("sequence") > F.col("_latest"))
    if entity.is_partial or is_truncated:  # the last message stays, and the state changes
        is_newer = is_newer | ~is_same(state, F.col("_latest_row"), latest.schema["_latest_row"].dataType)
    rows = versions.join(latest, on=list(entity.keys), how="left").withColumn("_is_newer", F.col("_is_last") & is_newer)
    with cached(rows.drop("_latest", "_latest_row", "_is_last")) as rows:
        [[changed, newer]] = rows.agg(F.count_if("_is_changed"), F.count_if("_is_newer")).collect()
        written = rows.where("_has_new_values OR _is_newer")
        stop_if_failed(written, entity.checks_of_rows, table=entity.table.name, keys=(*entity.keys, "sequence"))
        sized = lake.writing(max(changed, newer), rows)
        if changed:
            versions = rows.where("_is_changed").drop("_is_changed", "_has_new_values", "_is_newer")
            versions = versions.drop("_truncated_at")
            sized.table(entity.history.name).upsert(versions, on=[*entity.keys, "sequence"], update=changeable(entity))
        if newer:
            latest = rows.where("_is_newer").select(*(state_of(entity, columns) if is_truncated else columns))
            sized.table(entity.table.name).upsert(latest, on=entity.keys)


def decode_changes(messages: DataFrame, *, entity: Entity) -> DataFrame:
    """Messages as rows of the silver table, with `message`, and the `reason` if they are rejected.

    Raises ConfigurationError if Spark can't resolve the SQL of a column.
    """
    checks, reject = of_mode(entity.checks_of_rows, Mode.QUARANTINE), _unusable_key(entity)
    if entity.topic.envelope:
        reject = F.when(F.col("message.is_truncation"), _unusable_truncation(entity)).otherwise(reject)
    if checks:
        names = failed(checks, given=JUDGED)
        fails = ~F.col("message.is_tombstone") & (names != "")
        reject = F.coalesce(reject, F.when(fails, F.concat(F.lit("fails "), names)))
    decoded = messages.transform(decode, decoding=entity.decoding, reject=reject, keys=_key(entity))
    event_time = _event_time(entity)
    merged = decoded.withColumns(
        {
            "deleted_at": F.when(F.col("message.is_tombstone"), event_time).otherwise(F.col("deleted_at")),
            "sequence": F.struct(
                *_order(entity),
                event_time.alias("event_time"),
                "message.publish_time",
                "message.position.ledger_id",
                "message.position.entry_id",
                "message.position.batch_index",
                *(["message.position.row"] if entity.topic.rows else []),
            ),
        }
    )
    if entity.may_lack:
        merged = merged.withColumn(UNAVAILABLE, F.col("message.unavailable"))
    return merged.drop(OCCURRED_AT)


def _order(entity: Entity) -> list[Column]:
    """What orders messages before their times do."""
    if entity.has_snapshots_in_order:
        return [F.struct(F.col("message.position.ledger_id").alias(SNAPSHOT)).alias("by")]
    return [F.struct(*entity.ordered_by).alias("by")] if entity.ordered_by else []


def latest_changes(changes: DataFrame, *, keys: Sequence[str]) -> DataFrame:
    """The change of each key with the highest sequence."""
    row = F.struct(*changes.columns)
    by_key = changes.groupBy(*(F.col(key).alias(f"_{key}") for key in keys))
    return by_key.agg(F.max_by(row, "sequence").alias("last")).select("last.*")


def place(entity: Entity) -> Column:
    """Over silver's columns, as `_place`: where a row came from, also if it is rejected and its columns are NULL."""
    names = ("ledger_id", "entry_id", "batch_index", *(["row"] if entity.topic.rows else []))
    return F.struct(*(f"sequence.{name}" for name in names)).alias("_place")


def _event_time(entity: Entity) -> Column:
    """When a version begins. A time that no calendar has, before the year 1 or after 9999, counts as none."""
    own = [F.when(F.year(OCCURRED_AT).between(1, 9999), F.col(OCCURRED_AT))] if entity.has_own_time else []
    return F.coalesce(*own, "message.event_time", "message.publish_time")


def _key(entity: Entity) -> dict[str, Column]:
    """The columns of the key: a message without a value for one has that of its message key, if it is one row."""
    if entity.topic.rows:
        return {name: F.col(name) for name in entity.keys}
    given = key_values(F.col("message.key"), entity.key_types)
    return {name: F.coalesce(name, value) for name, value in zip(entity.keys, given, strict=True)}


def _unusable_key(entity: Entity) -> Column:
    given, key = F.col("message.key"), _key(entity)
    text = key_text([*key.values()])
    kind, name = _as_list([kind.simpleString().upper() for kind in entity.key_types]), _as_list(entity.keys)
    no_key = F.concat(
        F.lit(f"tombstone whose message key is not of type {kind}: "), F.coalesce(shown(given), F.lit("none"))
    )
    if entity.topic.rows:
        reason = F.when(F.col("message.is_tombstone"), "tombstone: a message of many rows deletes none")
    else:
        reason = F.when(F.col("message.is_tombstone") & key[entity.keys[0]].isNull(), no_key).when(
            given != text, F.concat(F.lit("message key "), shown(given), F.lit(f" is not the {name}: "), text)
        )
    for column, value in key.items():
        reason = reason.when(value.isNull(), f"{column} is NULL")
    return reason


def _unusable_truncation(entity: Entity) -> Column:
    if not entity.keeps_history:
        return F.lit("a truncation, which needs keeps_history")
    reason = F.lit(None).cast("string")
    for name in entity.ordered_by:  # or else it would be older than all keys
        reason = F.coalesce(reason, F.when(F.col(name).isNull(), F.lit(f"a truncation without {name}")))
    return reason


def _as_list(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"[{', '.join(names)}]"
