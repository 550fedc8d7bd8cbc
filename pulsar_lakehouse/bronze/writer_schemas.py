"""The schemas that Avro messages were written with, kept beside bronze because it can't be read without them."""

from collections.abc import Iterable
from dataclasses import replace

from pyspark.sql import functions as F

from pulsar_lakehouse.bronze.contracts import registered_schemas
from pulsar_lakehouse.contracts.schemas import RegisteredSchema
from pulsar_lakehouse.contracts.topics import Encoding, Topic
from pulsar_lakehouse.pulsar.endpoint import Endpoint
from pulsar_lakehouse.tables.declared import Table
from pulsar_lakehouse.tables.direct import append_values
from pulsar_lakehouse.tables.lake import Lake

WRITER_SCHEMAS = Table(
    name="bronze.writer_schemas", columns="topic STRING, version BIGINT, schema STRING", partition_by=("topic",)
)


def keep_writer_schemas(lake: Lake, topics: Iterable[Topic], endpoint: Endpoint) -> None:
    """Store the registered schemas of Avro topics that are not stored yet."""
    for topic in topics:
        if topic.encoding is not Encoding.AVRO:
            continue
        lake.create(WRITER_SCHEMAS)
        known = {each.version for each in with_writer_schemas(lake, topic).schemas}
        registered = registered_schemas(topic, endpoint, lake.settings)
        if new := [each for each in registered if each["version"] not in known]:
            rows = [{"topic": topic.name, "version": each["version"], "schema": each["data"]} for each in new]
            append_values(lake.settings, WRITER_SCHEMAS.name, rows)


def with_writer_schemas(lake: Lake, topic: Topic) -> Topic:
    """The topic with its stored writer schemas; unchanged if it is not Avro, or if none are stored."""
    if topic.encoding is not Encoding.AVRO or not lake.table(WRITER_SCHEMAS.name).exists():
        return topic
    rows = lake.table(WRITER_SCHEMAS.name).read().where(F.col("topic") == topic.name).collect()
    schemas = (RegisteredSchema(version=row.version, type=Encoding.AVRO, data=row.schema) for row in rows)
    return replace(topic, schemas=tuple(schemas))
