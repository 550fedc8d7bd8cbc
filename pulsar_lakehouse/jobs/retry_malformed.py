"""Retry malformed messages: those that satisfy the contract, now that it was fixed, move to their tables."""

import getpass
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from pulsar_lakehouse.bronze.decryption import decrypt_landed, decrypted
from pulsar_lakehouse.contracts.decoding import MALFORMED, Decoding, explain, of_kind
from pulsar_lakehouse.contracts.malformed import place_in, place_of, position_in
from pulsar_lakehouse.contracts.topics import Topic
from pulsar_lakehouse.gold.enrichment.declaration import ACTIONS, Enrichment
from pulsar_lakehouse.gold.enrichment.enrich import create_tables as create_gold
from pulsar_lakehouse.gold.enrichment.facts import decode_facts
from pulsar_lakehouse.gold.enrichment.stages import enrich_messages
from pulsar_lakehouse.jobs.steps import as_written
from pulsar_lakehouse.silver.entity import Entity
from pulsar_lakehouse.silver.merge import create_tables as create_silver
from pulsar_lakehouse.silver.merge import decode_changes, merge_batch
from pulsar_lakehouse.spark.frames import cached
from pulsar_lakehouse.tables.declared import POSITION_OF_MESSAGE
from pulsar_lakehouse.tables.direct import Merge, Within
from pulsar_lakehouse.tables.lake import Lake

SHOWN = ("key", "payload", "event_time")
"""What quarantine shows of a message, as it is: decrypted, if it could be."""
Transformation = Callable[[DataFrame], DataFrame]


@dataclass(frozen=True, kw_only=True)
class Retried:
    topic: str
    malformed: int
    """Malformed messages before the retry."""
    sound: int
    """How many of them satisfy the contract now."""


def retry_changes(lake: Lake, entity: Entity, *, dry_run: bool) -> Retried:
    entity = as_written(lake, entity)
    if not dry_run:
        create_silver(lake, entity)
        decrypt_landed(lake, entity.topic)
    decode, place = partial(decode_changes, entity=entity), partial(merge_batch, lake, entity)
    return _retry(lake, entity.decoding, decode, place, dry_run=dry_run)


def retry_facts(lake: Lake, enrichment: Enrichment, *, dry_run: bool) -> Retried:
    enrichment = as_written(lake, enrichment)
    if not dry_run:
        create_gold(lake, enrichment)
        decrypt_landed(lake, enrichment.topic)
    decode, place = partial(decode_facts, enrichment=enrichment), partial(enrich_messages, lake, enrichment)
    return _retry(lake, enrichment.decoding, decode, place, dry_run=dry_run)


def _retry(
    lake: Lake, decoding: Decoding, decode: Transformation, place: Callable[[DataFrame], None], *, dry_run: bool
) -> Retried:
    """Messages leave quarantine last: after a crash at any point, the next retry ends in the same tables.

    A row that was malformed leaves it, too, if its message has no such row any more. Those that came in its place are
    placed as those of any message.
    """
    topic = decoding.topic
    malformed = lake.table(MALFORMED.name).pin().rows.where(F.col("topic") == topic.name)
    position = F.expr(POSITION_OF_MESSAGE)
    landed = lake.table(topic.bronze_table).pin().rows.withColumn("position", position)
    messages = landed.join(malformed.select("position"), on="position", how="left_semi")
    messages = messages.transform(partial(decrypted, files=lake.settings.pulsar.decryption_keys))
    held = malformed if topic.is_plain else _of_kind(malformed, messages, decoding)
    before = held.select(position_in(topic), F.col("reason").alias("before"))
    checked = messages.drop("position").transform(decode).transform(explain, decoding=decoding)
    checked = checked.select("message.position", "reason", *(f"message.{name}" for name in SHOWN))
    with cached(before.join(checked, on="position", how="inner" if topic.is_plain else "left")) as verdicts:
        sound = verdicts.where("reason IS NULL").select(*place_of(F.col("position"), topic))
        outcome = Retried(topic=topic.name, malformed=malformed.count(), sound=sound.count())
        if len(topic.kind_names) > 1:
            outcome = _with_others(lake, outcome, decoding, landed, place, dry_run=dry_run)
        if dry_run:
            return outcome
        if not sound.isEmpty():
            place(messages.join(sound, on="position", how="left_semi").drop("position"))
            _note(lake, topic, sound)
        changed = verdicts.where("reason IS NULL OR reason != before")
        changed = changed.select(*place_of(F.col("position"), topic), "reason", *SHOWN)
        if not changed.isEmpty():
            _settle(lake.writing(outcome.malformed, verdicts), topic, changed)
    return outcome


def _of_kind(malformed: DataFrame, messages: DataFrame, decoding: Decoding) -> DataFrame:
    """Those of the malformed rows whose messages have landed, and are still of the topic's kind."""
    kind = messages.drop("position").transform(of_kind, decoding=decoding)
    return malformed.join(kind, on="position", how="left_semi")


def _with_others(
    lake: Lake,
    outcome: Retried,
    decoding: Decoding,
    landed: DataFrame,
    place: Callable[[DataFrame], None],
    *,
    dry_run: bool,
) -> Retried:
    """Counts malformed messages of other kinds that are of this one, now that they can be read, and places them."""
    others = sorted({*decoding.topic.kind_names} - {decoding.topic.name})
    is_other = F.col("topic").isin(*others)
    malformed = lake.table(MALFORMED.name).pin().rows.where(is_other).select("position").distinct()
    messages = landed.join(malformed, on="position", how="left_semi")
    messages = messages.transform(partial(decrypted, files=lake.settings.pulsar.decryption_keys))
    with cached(messages.drop("position").transform(of_kind, decoding=decoding)) as found:
        number = found.count()
        if number and not dry_run:
            place(messages.join(found, on="position", how="left_semi").drop("position"))
            within = Within(F.col("held.topic").isin(*others), {"topic": (others[0], others[-1])})
            how = Merge(on=["position"], within=within, delete=True)
            lake.writing(number, found).table(MALFORMED.name).merge(found, how)
    return replace(outcome, malformed=outcome.malformed + number, sound=outcome.sound + number)


def _note(lake: Lake, topic: Topic, places: DataFrame) -> None:
    lake.create(ACTIONS)
    rows = places.select(
        F.lit("retry").alias("action"),
        F.lit(topic.name).alias("topic"),
        *place_in(topic),
        F.current_timestamp().alias("requested_at"),
        F.lit(getpass.getuser()).alias("requested_by"),
        F.lit(None).cast("string").alias("note"),
    )
    lake.table(ACTIONS.name).append_missing(rows, on=["action", "topic", *place_in(topic)])


def _settle(lake: Lake, topic: Topic, verdicts: DataFrame) -> None:
    """Remove messages without a reason from quarantine, and update the others."""
    within = Within(F.col("held.topic") == topic.name, {"topic": (topic.name, topic.name)})
    update = {name: f"new.{name}" for name in ("reason", *SHOWN)}
    how = Merge(on=place_in(topic), within=within, delete="new.reason IS NULL", update=update)
    lake.table(MALFORMED.name).merge(verdicts, how)
