"""Retry malformed messages: those that satisfy the contract, now that it was fixed, move to their tables."""

import getpass
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from functools import partial, reduce

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from pulsar_lakehouse.bronze.decryption import decrypt_landed, decrypted
from pulsar_lakehouse.bronze.erasures import PARTS
from pulsar_lakehouse.contracts.decoding import MALFORMED, Decoding, explain, of_kind
from pulsar_lakehouse.contracts.malformed import is_same_row, place_in, place_of, position_in, quarantine_malformed
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


def retry_changes(lake: Lake, entity: Entity, *, dry_run: bool, kinds: Sequence[Decoding] = ()) -> Retried:
    """Retry the malformed messages of an entity. `kinds` are all those of its topic, if it has several."""
    entity = as_written(lake, entity)
    if not dry_run:
        create_silver(lake, entity)
        decrypt_landed(lake, entity.topic)
    decode, place = partial(decode_changes, entity=entity), partial(merge_batch, lake, entity)
    outcome = _retry(lake, entity.decoding, decode, place, dry_run=dry_run)
    return _with_others(lake, outcome, kinds, (decode, place), dry_run=dry_run) if kinds else outcome


def retry_facts(lake: Lake, enrichment: Enrichment, *, dry_run: bool, kinds: Sequence[Decoding] = ()) -> Retried:
    """Retry the malformed messages of facts. `kinds` are all those of their topic, if it has several."""
    enrichment = as_written(lake, enrichment)
    if not dry_run:
        create_gold(lake, enrichment)
        decrypt_landed(lake, enrichment.topic)
    decode, place = partial(decode_facts, enrichment=enrichment), partial(enrich_messages, lake, enrichment)
    outcome = _retry(lake, enrichment.decoding, decode, place, dry_run=dry_run)
    return _with_others(lake, outcome, kinds, (decode, place), dry_run=dry_run) if kinds else outcome


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
    checked = checked.select(F.col("message.position").alias("_now"), "reason", *(f"message.{name}" for name in SHOWN))
    # Of a message that is malformed as a whole now, no row leaves. One that is no more leaves, and its rows are placed.
    is_same = F.col("position") == F.col("_now")
    if topic.rows:
        is_same = is_same_row(F.col("position"), F.col("_now"), topic) & (is_same | (F.col("_now.row") < 0))
    joined = before.join(checked, on=is_same, how="inner" if topic.is_plain else "left").drop("_now")
    with cached(joined) as verdicts:
        sound = verdicts.where("reason IS NULL").select(*place_of(F.col("position"), topic))
        outcome = Retried(topic=topic.name, malformed=malformed.count(), sound=sound.count())
        if dry_run:
            return outcome
        if not sound.isEmpty():
            place(messages.join(sound, on="position", how="left_semi").drop("position"))
            if topic.rows:
                _quarantine_rows(
                    lake, decoding, messages.join(sound.where("row < 0"), on="position", how="left_semi"), decode
                )
            _note(lake, topic, sound)
        changed = verdicts.where("reason IS NULL OR reason != before")
        changed = changed.select(*place_of(F.col("position"), topic), "reason", *SHOWN)
        if not changed.isEmpty():
            _settle(lake.writing(outcome.malformed, verdicts), topic, changed)
    return outcome


def _quarantine_rows(lake: Lake, decoding: Decoding, messages: DataFrame, decode: Transformation) -> None:
    """Quarantine rejected rows of messages that are still held as a whole, so that they did not count as new."""
    rejected = messages.drop("position").transform(decode).where("reason IS NOT NULL")
    quarantine_malformed(lake, decoding, rejected)


def _of_kind(malformed: DataFrame, messages: DataFrame, decoding: Decoding) -> DataFrame:
    """Those of the malformed rows whose messages have landed, and are still of the topic's kind."""
    kind = messages.drop("position").transform(of_kind, decoding=decoding)
    return malformed.join(kind, on="position", how="left_semi")


def release_moved(lake: Lake, kinds: Sequence[Decoding], *, retried: Collection[str], dry_run: bool) -> int:
    """Let malformed messages of a kind leave quarantine that are not of it any more, now that they can be read.

    They must be of none but kinds that were `retried`, which have placed them. Returns how many are of none.
    """
    others = [each.topic.name for each in kinds if each.topic.name not in retried]
    is_placed = ~F.arrays_overlap("kinds", F.array(*map(F.lit, others)).cast("array<string>"))
    with cached(_moved(lake, kinds).where(is_placed)) as gone:
        of_none = F.count_if(F.size("kinds") == 0)
        counts = gone.groupBy("topic").agg(F.count("*").alias("number"), of_none.alias("of_none")).collect()
        for name, number, _ in counts if not dry_run else ():
            within = Within(F.col("held.topic") == name, {"topic": (name, name)})
            how = Merge(on=["topic", "position"], within=within, delete=True)
            of_name = gone.where(F.col("topic") == name).select("topic", "position")
            lake.writing(number, gone).table(MALFORMED.name).merge(of_name, how)
    return sum(row.of_none for row in counts)


def _moved(lake: Lake, kinds: Sequence[Decoding]) -> DataFrame:
    """The `topic` and `position` of malformed messages that are not of their kind, and the `kinds` that they are of."""
    names = [each.topic.name for each in kinds]
    malformed = lake.table(MALFORMED.name).pin().rows.where(F.col("topic").isin(*names))
    malformed = malformed.select("topic", "position").distinct()
    bronze = lake.table(kinds[0].topic.bronze_table).pin().rows.withColumn("position", F.expr(POSITION_OF_MESSAGE))
    messages = bronze.join(malformed, on="position", how="left_semi")
    messages = messages.transform(partial(decrypted, files=lake.settings.pulsar.decryption_keys))
    bare = messages.drop("position")
    tagged = [bare.transform(of_kind, decoding=each).withColumn("kind", F.lit(each.topic.name)) for each in kinds]
    landed = messages.select("position", F.lit(None).cast("string").alias("kind"))
    now = reduce(DataFrame.union, tagged, landed).groupBy("position").agg(F.collect_list("kind").alias("kinds"))
    return malformed.join(now, on="position", how="inner").where(~F.array_contains("kinds", F.col("topic")))


def _with_others(
    lake: Lake,
    outcome: Retried,
    kinds: Sequence[Decoding],
    steps: tuple[Transformation, Callable[[DataFrame], None]],
    *,
    dry_run: bool,
) -> Retried:
    """Counts malformed messages of other kinds that are of this one, now that they can be read, and places them."""
    decode, place = steps
    position = F.expr(POSITION_OF_MESSAGE)
    decrypting = partial(decrypted, files=lake.settings.pulsar.decryption_keys)
    # Before some are chosen: the first message of an entry has the payload of all, and may be of another kind.
    landed = lake.table(kinds[0].topic.bronze_table).pin().rows.transform(decrypting).withColumn("position", position)
    moved = _moved(lake, kinds).where(F.array_contains("kinds", outcome.topic)).select("position").distinct()
    with cached(moved) as found:
        number = found.count()
        if not number:
            return outcome
        messages = landed.join(found, on="position", how="left_semi").drop("position")
        checked = messages.transform(decode).where("reason IS NOT NULL")
        message = F.struct(*(f"message.position.{part}" for part in PARTS))
        sound = number - checked.select(message).distinct().count()
        if not dry_run:
            place(messages)
    return replace(outcome, malformed=outcome.malformed + number, sound=outcome.sound + sound)


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
