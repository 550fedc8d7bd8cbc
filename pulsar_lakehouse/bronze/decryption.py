"""Decrypts messages that landed encrypted, once their private keys are there.

They become plain text in bronze, as those are that land from then on: whoever reads bronze again finds them so.
"""

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from pulsar_lakehouse.bronze.pulsar.encryption import ENCRYPTION, Encryption, decrypt, load_keys
from pulsar_lakehouse.contracts.topics import Topic
from pulsar_lakehouse.spark.frames import cached
from pulsar_lakehouse.tables.direct import Merge
from pulsar_lakehouse.tables.lake import Lake

ENTRY = ("topic", "partition", "ledger_id", "entry_id")
CHANGED = ("key", "payload", "properties", "event_time")
"""The columns of bronze that decryption changes."""


def decrypt_landed(lake: Lake, topic: Topic) -> None:
    """Decrypt those of the topic's messages in bronze whose private key is there. This process must hold its lease.

    Streams that read bronze pass over the commit.
    """
    files, bronze = lake.settings.pulsar.decryption_keys, lake.table(topic.bronze_table)
    if not files:
        return
    opened = bronze.pin().rows.where(_is_encrypted()).transform(decrypted, files=files).where(~_is_encrypted())
    with cached(opened.select(*ENTRY, "batch_index", *CHANGED)) as rows:
        if not rows.isEmpty():
            with bronze.changeable():
                bronze.merge(rows, Merge(on=(*ENTRY, "batch_index"), update={name: f"new.{name}" for name in CHANGED}))


def _is_encrypted() -> Column:
    return F.col("properties")[ENCRYPTION].isNotNull()


def decrypted(messages: DataFrame, *, files: Mapping[str, Path]) -> DataFrame:
    """Bronze messages, where those are decrypted whose private key is in one of the PEM `files`, by its name.

    The messages of an entry must be there together, because the first one keeps the payload of all.
    """
    if not files:
        return messages
    of_entry = Window.partitionBy(*ENTRY).orderBy("batch_index")
    whole = messages.where(_is_encrypted()).withColumn("payload", F.first("payload").over(of_entry))
    opened = whole.mapInArrow(partial(_opened, files=files), messages.schema)
    return messages.where(~_is_encrypted()).unionByName(opened)


def _opened(batches: Iterator[pa.RecordBatch], files: Mapping[str, Path]) -> Iterator[pa.RecordBatch]:
    keys = load_keys(files)
    for batch in batches:
        rows = [{**row, **readable(row, keys)} for row in batch.to_pylist()]
        yield pa.RecordBatch.from_pylist(rows, batch.schema)


def readable(row: Mapping[str, Any], keys: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a bronze row that decryption changes; none if it can't be decrypted."""
    properties = dict(row["properties"])
    try:
        encryption = Encryption.from_json(properties.pop(ENCRYPTION))
    except ValueError:  # a producer wrote the property
        return {}
    found = decrypt(row["payload"] or b"", encryption, keys)
    if isinstance(found, str):
        return {}
    if encryption.messages is None:
        return {"payload": found[0].payload, "properties": properties}
    if not 0 <= row["batch_index"] < len(found):
        return {}
    message = found[row["batch_index"]]
    event_time = datetime.fromtimestamp(message.event_time / 1000, UTC) if message.event_time else None
    return {"payload": message.payload, "key": message.key, "properties": message.properties, "event_time": event_time}
