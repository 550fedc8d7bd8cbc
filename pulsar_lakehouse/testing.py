"""Tries the declarations of a project: literal messages in, tables out, without a broker."""

import atexit
import shutil
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import cache, partial
from pathlib import Path
from typing import Any

from pulsar_lakehouse.bronze.landing import bronze_table
from pulsar_lakehouse.bronze.schemas import SCHEMAS, append_schemas, kept_schemas
from pulsar_lakehouse.contracts.schemas import RegisteredSchema
from pulsar_lakehouse.contracts.topics import Topic, in_full
from pulsar_lakehouse.errors import ConfigurationError
from pulsar_lakehouse.gold.sql.refresh import refresh
from pulsar_lakehouse.inspection.query import query
from pulsar_lakehouse.jobs.steps import run_landed
from pulsar_lakehouse.pipeline.loading import pipeline_of
from pulsar_lakehouse.pulsar.message_lines import epoch_millis_of, message_of
from pulsar_lakehouse.pulsar.produce import NO_SCHEMA, Message, MessageSchema, own_schema
from pulsar_lakehouse.settings import Settings, Spark, load_settings
from pulsar_lakehouse.spark.session import SHORT_RUN, start_spark, stop_spark
from pulsar_lakehouse.tables.lake import Lake

Rows = list[tuple[Any, ...]]
Landed = Sequence[tuple[Message, datetime, Topic]]
"""Messages with their publish times, and the topics that they are in."""


def run_messages(home: Path, /, **messages: Sequence[Mapping[str, Any]]) -> Callable[[str], Rows]:
    """Merge, enrich and refresh messages as the project in the working directory declares.

    `messages` are those of each topic, oldest first, as `lakehouse send` takes them. They can also have a
    `publish_time`, which is otherwise the present. If several topics land in one table, each message says in which
    `topic` it is. The tables are in `home`; with the same one, the messages of the next call come later. Returns a
    function that answers SQL over the tables with rows.

    Raises ConfigurationError for a topic that is not declared, and for a wrong message.
    """
    settings = _local(load_settings(home=home))
    pipeline = pipeline_of(settings)
    topics = {topic.name: topic for topic in pipeline.landed}
    landed = {name: _messages(settings, topics, name, given) for name, given in messages.items()}
    atexit.register(stop_spark)
    lake = Lake(start_spark(settings), settings)
    for topic in topics.values():
        _land(lake, topic, landed.get(topic.name, []))
    for _ in run_landed(lake):
        pass
    for table in pipeline.sql_tables:
        refresh(lake, table)
    return partial(_rows_of, settings)


def _local(settings: Settings) -> Settings:
    """The settings with all tables in the home, and Spark on this machine, whatever the project's are."""
    conf = {**SHORT_RUN, "spark.local.dir": _folder_of_spark(), "spark.sql.warehouse.dir": _folder_of_spark()}
    spark = Spark(memory=settings.spark.memory, conf=conf)
    return settings.model_copy(update={"warehouse": "", "checkpoints": "", "spark": spark})


@cache
def _folder_of_spark() -> str:
    """A folder that lasts as long as Spark, which serves all tests: the home of the first one may not."""
    folder = tempfile.mkdtemp(prefix="lakehouse-spark-")
    atexit.register(partial(shutil.rmtree, folder, ignore_errors=True))  # comes after Spark is stopped
    return folder


def _messages(settings: Settings, topics: Mapping[str, Topic], name: str, given: Iterable[Mapping[str, Any]]) -> Landed:
    if name not in topics:
        raise ConfigurationError(f"{name}: not declared; there are {', '.join(topics)}")
    return [_message(settings, topics[name], each) for each in given]


def _message(settings: Settings, topic: Topic, given: Mapping[str, Any]) -> tuple[Message, datetime, Topic]:
    sent = {name: value for name, value in given.items() if name != "publish_time"}
    if topic.is_several:
        namespace, name = settings.pulsar.namespace, str(sent.pop("topic", ""))
        if not topic.lands(in_full(name, namespace), namespace):
            raise ConfigurationError(f"{topic.name}: topic: {name}: must be one of {topic.own_name}")
        topic = replace(topic, topic=in_full(name, namespace))
    published = datetime.now(UTC)
    if "publish_time" in given:
        published = _time_of(epoch_millis_of("publish_time", given["publish_time"])) or published
    return message_of(sent, topic), published, topic


def _land(lake: Lake, topic: Topic, landed: Landed) -> None:
    """Append the messages to bronze, and keep the schemas that they are written with."""
    table, ledger, now = bronze_table(topic), time.time_ns(), datetime.now(UTC)  # later calls have higher positions
    lake.create(table)
    own = own_schema(topic)
    versions = {
        of: _keep_schemas(lake, of, dict.fromkeys([own, *(each.schema or own for each, _, at in landed if at == of)]))
        for of in dict.fromkeys([*(of for *_, of in landed), *([] if topic.is_several else [topic])])
    }
    rows = [
        (
            *(of.own_name if topic.is_several else of.name, 0, ledger, entry, -1),
            *(each.key or None, each.payload, each.properties or {}, _time_of(each.event_time), published, ""),
            *(versions[of].get(each.schema or own), now, published.date()),
        )
        for entry, (each, published, of) in enumerate(landed)
    ]
    if rows:
        frame = lake.spark.createDataFrame(rows, table.ddl)
        frame.write.format("delta").mode("append").save(lake.settings.table_path(table.name))


def _time_of(epoch_millis: int) -> datetime | None:
    return datetime.fromtimestamp(epoch_millis / 1000, UTC) if epoch_millis else None


def _keep_schemas(lake: Lake, topic: Topic, schemas: Iterable[MessageSchema]) -> dict[MessageSchema, int]:
    """Keep the schemas as landing does, and return the version of each."""
    known = kept_schemas(lake.settings, topic)
    registered = registered_as(schemas, known)
    if new := [each for each in registered.values() if each not in known]:
        lake.create(SCHEMAS)
        append_schemas(lake.settings, topic, new)
    return {schema: each.version for schema, each in registered.items()}


def registered_as(
    schemas: Iterable[MessageSchema], known: Sequence[RegisteredSchema]
) -> dict[MessageSchema, RegisteredSchema]:
    """The schemas as a broker would register them: a `known` one keeps its version, and a new one gets the next."""
    versions = {(each.type, each.data): each for each in known}
    found: dict[MessageSchema, RegisteredSchema] = {}
    for schema in schemas:
        if schema != NO_SCHEMA:
            new = RegisteredSchema(
                version=max((each.version for each in versions.values()), default=-1) + 1,
                type=schema.type,
                data=schema.data,
                properties=dict(schema.properties),
            )
            found[schema] = versions.setdefault((schema.type, schema.data), new)
    return found


def _rows_of(settings: Settings, statement: str) -> Rows:
    return query(settings, statement).fetchall()
