"""Publish a gold table to a topic: first its rows, then each change, as keyed messages, each exactly once.

The sequence number of a message is made of the commit's version and the place in the commit. So a repeated batch,
however it is split, gives each change the same number, and a partition takes no message that it already has.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T
from pyspark.sql.streaming.readwriter import DataStreamWriter

from pulsar_lakehouse.checkpoints.soundness import finished_version, sound_checkpoint
from pulsar_lakehouse.contracts.avro_schemas import avro_record
from pulsar_lakehouse.errors import PermanentError
from pulsar_lakehouse.gold.enrichment.declaration import Enrichment
from pulsar_lakehouse.gold.sql.declaration import SqlTable
from pulsar_lakehouse.local.broker import wait_until_healthy
from pulsar_lakehouse.progress import CONSOLE, spinner
from pulsar_lakehouse.pulsar.endpoint import Endpoint
from pulsar_lakehouse.pulsar.publishing import Numbered, Publication, count_partitions, last_messages, send
from pulsar_lakehouse.spark.batches import each_batch
from pulsar_lakehouse.tables.lake import Lake

RANK_BITS = 32
"""The low bits of a sequence number, for the place in the commit. The version is in the bits above."""
ALL_FILES = 2**31 - 1
"""The files per batch: a batch must not end within a commit, or the places in it would be counted wrongly."""


@dataclass(frozen=True, kw_only=True)
class Changelog:
    """A gold table, and the topic that it is published to."""

    table: str
    topic: str
    record: str
    """The name of the Avro record in the topic's schema."""
    keys: tuple[str, ...]
    order_by: tuple[str, ...]
    """The columns that order the changes within a commit."""


def changelog_of(declared: Enrichment | SqlTable) -> Changelog:
    """The changelog of an enrichment or a SQL table that declares a topic."""
    if isinstance(declared, SqlTable):
        record = "".join(part.title() for part in declared.file.stem.split("_"))
        table, topic, keys = declared.name, str(declared.topic), declared.keys
        return Changelog(table=table, topic=topic, record=record, keys=keys, order_by=keys)
    return Changelog(
        table=declared.gold_table,
        topic=str(declared.publish_to),
        record=f"Enriched{declared.topic.record}",
        keys=declared.keys,
        order_by=("position",),
    )


def publish(lake: Lake, changelog: Changelog, endpoint: Endpoint) -> DataStreamWriter:
    """The stream from gold's change feed to its topic. Without a checkpoint, it continues with what the topic lacks.

    An empty topic first gets the current rows, because the files of older changes may be gone. Raises PermanentError if
    changes that the topic lacks are gone.
    """
    wait_until_healthy(endpoint, lake.settings)
    publication = publication_of(lake, changelog, endpoint)
    last = last_messages(publication)
    stream = f"published.{publication.topic}"
    finished = finished_version(lake, stream, reads=changelog.table)
    checkpoint = sound_checkpoint(lake, stream, reads=[changelog.table])
    if begun := [each.since for each in last if each is not None]:
        publication = replace(publication, since=begun[0])
    else:  # nothing was published, or the topic was recreated
        lake.files.delete(checkpoint)
        finished = 0
    since = publication.since
    reached = [since if each is None else each.sequence >> RANK_BITS for each in last]
    is_known = lake.files.exists(f"{checkpoint}/offsets/[0-9]*")
    # Changes are sent only after all rows were, and only then is there a checkpoint.
    if max(reached) == since and not (is_known or finished):
        rows = lake.table(changelog.table).read(since)
        marks = {"_change_type": F.lit("insert"), "_commit_version": F.lit(since).cast("bigint")}
        with spinner(f"Sending the rows of {changelog.table}"):
            publish_batch(publication, changelog, rows.withColumns(marks))
        CONSOLE.say(f"Sent the {rows.count():,} rows of {changelog.table}; its changes follow")
    first = max(min(reached), since + 1)
    if not is_known:
        first = max(first, finished)
        _refuse_gone(lake, changelog, first)
    changes = lake.table(changelog.table).stream(
        readChangeFeed=True, startingVersion=first, maxFilesPerTrigger=ALL_FILES
    )
    send_batch = each_batch(partial(publish_batch, publication, changelog))
    return changes.writeStream.foreachBatch(send_batch).option("checkpointLocation", checkpoint)


def _refuse_gone(lake: Lake, changelog: Changelog, first: int) -> None:
    """Raises PermanentError if the table's changes from a version on are gone."""
    if not lake.table(changelog.table).has_changes_since(first - 1):
        raise PermanentError(
            f"{changelog.topic}: lacks changes of {changelog.table} since version {first}, which are gone: delete the "
            "topic, and publish all rows again"
        )


def publication_of(lake: Lake, changelog: Changelog, endpoint: Endpoint) -> Publication:
    """The publication of gold's current schema and version. A recreated gold table is another publisher."""
    table = lake.table(changelog.table)
    return Publication(
        topic=changelog.topic,
        publisher=f"lakehouse-{table.id}",
        record=changelog.record,
        avro=json.dumps(avro_record(changelog.record, table.read().schema)),
        since=table.version,
        endpoint=endpoint,
        settings=lake.settings,
    )


def publish_batch(publication: Publication, changelog: Changelog, changes: DataFrame) -> None:
    """Send the messages of a batch that the topic lacks."""

    def send_messages(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for first in batches:  # all rows of a task go to one partition
            send(publication, first["target"][0].as_py(), number(chain([first], batches)))
        return iter(())

    partitions = count_partitions(publication)
    messages = changes.transform(to_messages, keys=changelog.keys, order_by=changelog.order_by, partitions=partitions)
    messages.mapInArrow(send_messages, "nothing INT").collect()


def to_messages(changes: DataFrame, *, keys: Sequence[str], order_by: Sequence[str], partitions: int) -> DataFrame:
    """The changes as messages, in sending order. Each partition of the frame has those of one partition of the topic.

    Within a commit, tombstones of deleted rows come first, then rows by `order_by`. The message key is the row's key as
    text. Several key columns are joined by `-`: in text columns, `-` and backslashes are escaped by a backslash. The
    topic's partition is the CRC-32 of the message key, modulo the number of partitions.
    """
    row = T.StructType([field for field in changes.schema if not field.name.startswith("_")])
    values = F.struct(*(to_avro(F.col(field.name), field.dataType).alias(field.name) for field in row))
    is_there = F.col("_change_type") != "delete"
    messages = changes.where("_change_type <> 'update_preimage'").select(
        F.concat_ws("-", *(_part(changes, key) if len(keys) > 1 else key for key in keys)).alias("key"),
        F.when(is_there, F.to_json(values)).cast("binary").alias("payload"),
        F.col("_commit_version").alias("version"),
        F.struct(*order_by).alias("order"),
    )
    target = (F.crc32(F.col("key").cast("binary")) % partitions).cast("int")
    return (
        messages.withColumn("target", target)
        .repartitionById(partitions, "target")
        .sortWithinPartitions("version", F.col("payload").isNotNull(), "order")
        .select("target", "version", "key", "payload")
    )


def _part(rows: DataFrame, key: str) -> Column:
    """A key column as part of a joined key. Without escapes, ("a-b", "c") and ("a", "b-c") would be the same key."""
    is_text = isinstance(rows.schema[key].dataType, T.StringType)
    return F.regexp_replace(key, r"([-\\])", r"\\$1") if is_text else F.col(key)


def to_avro(value: Column, kind: T.DataType) -> Column:
    """A value as its Avro type: times in epoch milliseconds, dates in days since 1970, decimals as text."""
    match kind:
        case T.TimestampType():
            return F.unix_millis(value)
        case T.DateType():
            return F.unix_date(value)
        case T.DecimalType():
            return value.cast("string")
        case T.ArrayType():
            return F.transform(value, lambda item: to_avro(item, kind.elementType))
        case T.MapType():
            return F.transform_values(value, lambda _, item: to_avro(item, kind.valueType))
        case T.StructType():
            fields = (to_avro(value[field.name], field.dataType).alias(field.name) for field in kind)
            return F.when(value.isNotNull(), F.struct(*fields))
    return value


def number(batches: Iterator[pa.RecordBatch]) -> Iterator[Numbered]:
    """The messages of a partition with their sequence numbers: the commit's version, then the place in the commit."""
    commit, place = -1, 0
    for batch in batches:
        for version, key, payload in zip(
            *(batch[name].to_pylist() for name in ("version", "key", "payload")), strict=True
        ):
            place = place + 1 if version == commit else 0
            commit = version
            yield (commit << RANK_BITS) + place, key, payload
