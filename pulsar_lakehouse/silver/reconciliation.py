"""Check that silver is the latest state of all messages that landed."""

from collections import Counter
from collections.abc import Sequence

from pyspark.sql import Column, DataFrame, Row
from pyspark.sql import functions as F

from pulsar_lakehouse.contracts.decoding import MALFORMED, of_kind
from pulsar_lakehouse.contracts.malformed import is_same_row, position_in
from pulsar_lakehouse.contracts.rows import landed_in, units_of
from pulsar_lakehouse.reconciliation import Reconciliation, fingerprint
from pulsar_lakehouse.silver.entity import Entity
from pulsar_lakehouse.silver.merge import decode_changes, place
from pulsar_lakehouse.silver.truncations import is_truncation
from pulsar_lakehouse.tables.lake import Lake

TRUNCATIONS = "truncations"
TO_BE_RETRIED = "to be retried"
NOT_MERGED = "landed, but not merged (they are lost if `lakehouse merge` has run since, and since any restore)"


def reconcile_entity(lake: Lake, entity: Entity) -> Reconciliation:
    """Compare each message in bronze with the row of its key in silver.

    A message is one of these: `current`, it made the row; `superseded`, it is older than the message that did;
    `malformed`; `to be retried`, it is quarantined but keeps today's contract; `purged`, its key was deleted long ago
    and has no row; `truncations`, it deleted all keys. Any other message was not merged, which is a problem. Each row
    must come from one landed message, and the history must have the sequences of all merged messages. A message in the
    history counts as merged even if today's stricter contract rejects it.
    """
    bronze, silver = (lake.table(name).read() for name in (entity.topic.bronze_table, entity.table.name))
    latest = silver.select(*entity.keys, F.col("sequence").alias("_latest"))
    messages, by_status, in_quarantine, units = _counted(lake, entity, bronze, latest)
    counts = Counter({row.status: row.messages for row in by_status})
    purged = _purged(messages, latest, entity) if counts["not merged"] else 0
    landed = landed_in(bronze, entity.decoding, units)
    is_once = counts.total() == landed.units
    # If some keys have more than one row, the joins have counted messages twice.
    is_other = entity.keeps_history and is_once and not _is_same_history(lake, entity, by_status)
    rows, lost, rejected = silver.count(), counts["not merged"] - purged, _count_rejected(by_status)
    made = counts["current"]
    problems = {
        f"{lost:,} {NOT_MERGED}": lost != 0,
        f"{rejected:,} malformed messages landed, and {in_quarantine:,} are in {MALFORMED.name}": (
            rejected != in_quarantine
        ),
        f"some keys have more than one row in {entity.table.name}": not is_once,
        f"{entity.table.name} has {rows:,} rows, {made:,} of them from messages that landed": rows != made,
        f"the versions in {entity.history.name} do not match the messages that landed": is_other,
    }
    return Reconciliation(
        topic=entity.name,
        landed=landed.messages,
        rows=landed.rows,
        empty=landed.empty,
        accounted=_accounted(counts, in_quarantine, purged),
        problems=tuple(problem for problem, is_there in problems.items() if is_there),
    )


def _counted(
    lake: Lake, entity: Entity, bronze: DataFrame, latest: DataFrame
) -> tuple[DataFrame, list[Row], int, DataFrame | None]:
    """The decoded messages, their numbers by status, how many are in quarantine, and their rows if they have many."""
    messages, units = bronze.transform(decode_changes, entity=entity), None
    messages = messages.select("*", _place_of(F.col("message.position")).alias("_place"))
    quarantined = lake.table(MALFORMED.name).read().where(F.col("topic") == entity.topic.name)
    quarantined = quarantined.select(position_in(entity.topic)).select(_place_of(F.col("position")).alias("_place"))
    if entity.topic.rows:  # the tables may be of an older contract
        units = _units(lake, entity, bronze, messages, quarantined)
        messages = messages.transform(_by_unit, units=units, entity=entity)
    quarantined = quarantined.withColumn("_is_quarantined", F.lit(True))
    in_quarantine = quarantined.count()
    by_status = _by_status(messages, latest, quarantined, entity)
    if entity.keeps_history and in_quarantine != _count_rejected(by_status):
        history = lake.table(entity.history.name).read()
        messages = messages.transform(_as_merged, history=history, entity=entity)
        by_status = _by_status(messages, latest, quarantined, entity)
    return messages, by_status, in_quarantine, units


def _place_of(position: Column) -> Column:
    """A position as silver's sequence has it."""
    return position.dropFields("partition")


def _units(lake: Lake, entity: Entity, bronze: DataFrame, messages: DataFrame, quarantined: DataFrame) -> DataFrame:
    known = quarantined.select(F.col("_place").alias("position"))
    if entity.keeps_history:
        merged = lake.table(entity.history.name).read().select(place(entity).alias("position"))
        known = known.union(merged)
    landed = bronze.transform(of_kind, decoding=entity.decoding).select(_place_of(F.col("position")).alias("position"))
    return units_of(messages.select(F.col("_place").alias("position")), known, landed)


def _by_unit(messages: DataFrame, *, units: DataFrame, entity: Entity) -> DataFrame:
    """A row for each unit: the message's own, or that of the message as a whole, or NULL in all columns."""
    unit, own = F.col("_unit"), F.col("_place")
    is_own = is_same_row(unit, own, entity.topic) & ((unit == own) | (own["row"] < 0))
    joined = (
        units.withColumnRenamed("position", "_unit").join(messages, on=is_own, how="left").withColumn("_place", unit)
    )
    return joined.drop("_unit")


def _is_same_history(lake: Lake, entity: Entity, by_status: Sequence[Row]) -> bool:
    """Whether the history has the merged messages, by number and fingerprint, which do not depend on their order."""
    sequence = F.col("sequence")
    [versions] = lake.table(entity.history.name).read().agg(F.count(sequence), fingerprint(sequence)).collect()
    return tuple(versions) == (sum(row.merged for row in by_status), sum(row.fingerprint for row in by_status))


def _accounted(counts: Counter[str], in_quarantine: int, purged: int) -> dict[str, int]:
    """Messages by status; the last three are left out if there are none."""
    to_retry, truncations = counts[TO_BE_RETRIED], counts[TRUNCATIONS]
    always = {"current": counts["current"], "superseded": counts["superseded"], "malformed": in_quarantine - to_retry}
    others = (("purged", purged), (TO_BE_RETRIED, to_retry), (TRUNCATIONS, truncations))
    return always | {name: count for name, count in others if count}


def _by_status(messages: DataFrame, latest: DataFrame, quarantined: DataFrame, entity: Entity) -> list[Row]:
    """By status: the number of messages, and the number and fingerprint of the merged ones."""
    status = (
        F.when(F.col("reason").isNotNull(), "malformed")
        .when(is_truncation(entity) & F.col("sequence").isNotNull(), TRUNCATIONS)
        .when(F.col("sequence") == F.col("_latest"), "current")
        .when(F.col("_is_quarantined"), TO_BE_RETRIED)
        .when(F.col("sequence") < F.col("_latest"), "superseded")
        .otherwise("not merged")
    )
    joined = (
        messages.select(*entity.keys, "sequence", "reason", "_place")
        .join(latest, on=list(entity.keys), how="left")
        .join(quarantined, on="_place", how="left")
    )
    merged = F.when(F.col("reason").isNull() & F.col("_is_quarantined").isNull(), F.col("sequence"))
    numbers = (
        F.count("*").alias("messages"),
        F.count(merged).alias("merged"),
        fingerprint(merged).alias("fingerprint"),
    )
    return joined.groupBy(status.alias("status")).agg(*numbers).collect()


def _count_rejected(by_status: Sequence[Row]) -> int:
    return sum(row.messages for row in by_status if row.status in ("malformed", TO_BE_RETRIED))


def _as_merged(messages: DataFrame, *, history: DataFrame, entity: Entity) -> DataFrame:
    """The messages. One that the history has is not rejected, and has the key and the sequence of its version there."""
    versions = history.select(place(entity), F.struct(*entity.keys, "sequence").alias("_version"))
    version, joined = F.col("_version"), messages.join(versions, on="_place", how="left")
    as_there = {name: F.coalesce(version[name], name) for name in (*entity.keys, "sequence")}
    return joined.withColumns({"reason": F.when(version.isNull(), F.col("reason")), **as_there}).drop("_version")


def _purged(messages: DataFrame, latest: DataFrame, entity: Entity) -> int:
    """The number of messages whose key has no row, and was deleted long ago by its last message or by a truncation."""
    merged = messages.where("reason IS NULL")
    truncation = merged.where(is_truncation(entity)).agg(F.max("sequence").alias("_truncation"))
    missing = merged.where(~is_truncation(entity)).join(latest, on=list(entity.keys), how="left_anti")
    last = F.max_by(F.struct("deleted_at", "sequence"), "sequence")
    keys = missing.groupBy(*entity.keys).agg(F.count("*").alias("messages"), last.alias("_last"))
    is_truncated = F.col("_truncation") > F.col("_last.sequence")
    deleted_at = F.least("_last.deleted_at", F.when(is_truncated, F.col("_truncation.event_time")))
    expired = keys.crossJoin(truncation).where(entity.is_expired(deleted_at, F.col("_last.sequence.publish_time")))
    return int(expired.agg(F.coalesce(F.sum("messages"), F.lit(0))).collect()[0][0])
