"""Check that silver is the latest state of all messages that landed."""

from collections import Counter
from collections.abc import Sequence

from pyspark.sql import Column, DataFrame, Row
from pyspark.sql import functions as F

from pulsar_lakehouse.contracts.decoding import MALFORMED
from pulsar_lakehouse.reconciliation import Reconciliation
from pulsar_lakehouse.silver.entity import Entity
from pulsar_lakehouse.silver.merge import decode_changes, place
from pulsar_lakehouse.tables.lake import Lake

TO_BE_RETRIED = "to be retried"
NOT_MERGED = "landed, but not merged (they are lost if `lakehouse merge` has run since, and since any restore)"


def reconcile_entity(lake: Lake, entity: Entity) -> Reconciliation:
    """Compare each message in bronze with the row of its key in silver.

    A message is one of these: `current`, it made the row; `superseded`, it is older than the message that did;
    `malformed`; `to be retried`, it is quarantined but keeps today's contract; `purged`, its key was deleted long ago
    and has no row. Any other message was not merged, which is a problem. Each row must come from one landed message,
    and the history must have the sequences of all merged messages. A message in the history counts as merged even if
    today's stricter contract rejects it.
    """
    bronze, silver = (lake.table(name).read() for name in (entity.topic.bronze_table, entity.table.name))
    held = silver.select(*entity.keys, F.col("sequence").alias("held"))
    messages, found, in_quarantine = _counted(lake, entity, bronze, held)
    counts = Counter({row.status: row.messages for row in found})
    purged = _purged(messages, held, entity) if counts["not merged"] else 0
    landed = bronze.count()
    is_once = counts.total() == landed
    # If some keys have more than one row, the joins have counted messages twice.
    is_other = entity.keeps_history and is_once and not _is_same_history(lake, entity, found)
    rows, lost, rejected = silver.count(), counts["not merged"] - purged, _count_rejected(found)
    checks = (
        (lost == 0, f"{lost:,} {NOT_MERGED}"),
        (
            rejected == in_quarantine,
            f"{rejected:,} malformed messages landed, and {in_quarantine:,} are in {MALFORMED.name}",
        ),
        (is_once, f"some keys have more than one row in {entity.table.name}"),
        (
            rows == counts["current"],
            f"{entity.table.name} has {rows:,} rows, {counts['current']:,} of them from messages that landed",
        ),
        (not is_other, f"the versions in {entity.history.name} do not match the messages that landed"),
    )
    return Reconciliation(
        topic=entity.name,
        landed=landed,
        accounted=_accounted(counts, in_quarantine, purged),
        problems=tuple(problem for passes, problem in checks if not passes),
    )


def _counted(lake: Lake, entity: Entity, bronze: DataFrame, held: DataFrame) -> tuple[DataFrame, list[Row], int]:
    """The decoded messages, their numbers by status, and how many are in quarantine."""
    messages = bronze.transform(decode_changes, entity=entity)
    quarantined = lake.table(MALFORMED.name).read().where(F.col("topic") == entity.topic.name)
    quarantined = quarantined.select("position", F.lit(True).alias("is_quarantined"))
    in_quarantine = quarantined.count()
    found = _by_status(messages, held, quarantined, entity)
    if entity.keeps_history and in_quarantine != _count_rejected(found):
        history = lake.table(entity.history.name).read()
        messages = messages.transform(_as_merged, history=history, keys=entity.keys)
        found = _by_status(messages, held, quarantined, entity)
    return messages, found, in_quarantine


def _is_same_history(lake: Lake, entity: Entity, found: Sequence[Row]) -> bool:
    history = lake.table(entity.history.name).read()
    held = history.agg(F.count("*").alias("merged"), _print(F.col("sequence"))).collect()
    return _fingerprint(held) == _fingerprint(found)


def _accounted(counts: Counter[str], in_quarantine: int, purged: int) -> dict[str, int]:
    """Messages by status; the last two are left out if there are none."""
    to_retry = counts[TO_BE_RETRIED]
    always = {"current": counts["current"], "superseded": counts["superseded"], "malformed": in_quarantine - to_retry}
    return always | {name: count for name, count in (("purged", purged), (TO_BE_RETRIED, to_retry)) if count}


def _by_status(messages: DataFrame, held: DataFrame, quarantined: DataFrame, entity: Entity) -> list[Row]:
    """By status: the number of messages, and the number and fingerprint of the merged ones."""
    status = (
        F.when(F.col("reason").isNotNull(), "malformed")
        .when(F.col("sequence") == F.col("held"), "current")
        .when(F.col("is_quarantined"), TO_BE_RETRIED)
        .when(F.col("sequence") < F.col("held"), "superseded")
        .otherwise("not merged")
    )
    joined = (
        messages.select(*entity.keys, "sequence", "reason", "message.position")
        .join(held, on=list(entity.keys), how="left")
        .join(quarantined, on="position", how="left")
    )
    merged = F.when(F.col("reason").isNull() & F.col("is_quarantined").isNull(), F.col("sequence"))
    numbers = (F.count("*").alias("messages"), F.count(merged).alias("merged"), _print(merged))
    return joined.groupBy(status.alias("status")).agg(*numbers).collect()


def _count_rejected(found: Sequence[Row]) -> int:
    return sum(row.messages for row in found if row.status in ("malformed", TO_BE_RETRIED))


def _as_merged(messages: DataFrame, *, history: DataFrame, keys: Sequence[str]) -> DataFrame:
    """The messages. One that the history has is not rejected, and has the key and the sequence of its version there."""
    versions = history.select(place(), F.struct(*keys, "sequence").alias("_held"))
    held, joined = F.col("_held"), messages.select("*", place()).join(versions, on="_place", how="left")
    as_held = {name: F.coalesce(held[name], name) for name in (*keys, "sequence")}
    return joined.withColumns({"reason": F.when(held.isNull(), F.col("reason")), **as_held}).drop("_held", "_place")


def _print(sequence: Column) -> Column:
    """The fingerprint of some sequences: a sum of hashes, 0 if there are none."""
    hashed = F.when(sequence.isNotNull(), F.pmod(F.xxhash64(sequence), F.lit(2**31 - 1)))
    return F.coalesce(F.sum(hashed), F.lit(0)).alias("print")


def _fingerprint(parts: Sequence[Row]) -> tuple[int, int]:
    """The number of merged messages and a sum of hashes. Order and grouping do not change them."""
    return sum(row.merged for row in parts), sum(row.print for row in parts)


def _purged(messages: DataFrame, held: DataFrame, entity: Entity) -> int:
    """The number of messages whose key has no row and whose last message is an expired delete."""
    missing = messages.where("reason IS NULL").join(held, on=list(entity.keys), how="left_anti")
    last = F.max_by(F.struct("deleted_at", "sequence.publish_time"), "sequence")
    keys = missing.groupBy(*entity.keys).agg(F.count("*").alias("messages"), last.alias("last"))
    expired = keys.where(entity.is_expired(F.col("last.deleted_at"), F.col("last.publish_time")))
    return int(expired.agg(F.coalesce(F.sum("messages"), F.lit(0))).collect()[0][0])
