"""Tries the declarations of a project: literal messages in, tables out, without a broker."""

import atexit
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

from pulsar_lakehouse.bronze.landing import bronze_table
from pulsar_lakehouse.contracts.topics import Encoding, Topic
from pulsar_lakehouse.errors import ConfigurationError
from pulsar_lakehouse.gold.sql.refresh import refresh
from pulsar_lakehouse.inspection.query import query
from pulsar_lakehouse.jobs.steps import run_landed
from pulsar_lakehouse.pipeline.loading import pipeline_of
from pulsar_lakehouse.pulsar.message_lines import message_of
from pulsar_lakehouse.settings import Settings, Spark, load_settings
from pulsar_lakehouse.spark.session import SHORT_RUN, start_spark, stop_spark
from pulsar_lakehouse.tables.lake import Lake

Rows = list[tuple[Any, ...]]


def run_messages(home: Path, /, **messages: Sequence[Mapping[str, Any]]) -> Callable[[str], Rows]:
    """Merge, enrich and refresh messages as the project in the working directory declares.

    `messages` are those of each topic, oldest first, as `lakehouse send` takes them. The tables are in `home`; with the
    same one, the messages of the next call come later. Returns a function that answers SQL over the tables with rows.

    Raises ConfigurationError for a topic that is not declared or whose payloads are not JSON, and for a wrong message.
    """
    settings = _local(load_settings(home=home))
    pipeline = pipeline_of(settings)
    topics = {topic.name: topic for topic in pipeline.topics}
    rows = {name: _bronze_rows(topics, name, given) for name, given in messages.items()}
    atexit.register(stop_spark)
    spark = start_spark(settings)
    for topic in topics.values():
        _append(Lake(spark, settings), topic, rows.get(topic.name, []))
    for _ in run_landed(Lake(spark, settings)):
        pass
    for table in pipeline.sql_tables:
        refresh(Lake(spark, settings), table)
    return partial(_rows_of, settings)


def _local(settings: Settings) -> Settings:
    """The settings with all tables in the home, and Spark on this machine, whatever the project's are."""
    spark = Spark(memory=settings.spark.memory, conf=SHORT_RUN)
    return settings.model_copy(update={"warehouse": "", "checkpoints": "", "spark": spark})


def _bronze_rows(topics: Mapping[str, Topic], name: str, messages: Iterable[Mapping[str, Any]]) -> Rows:
    if name not in topics:
        raise ConfigurationError(f"{name}: not declared; there are {', '.join(topics)}")
    if topics[name].encoding != Encoding.JSON:
        raise ConfigurationError(f"{name}: is declared as {topics[name].encoding}: only JSON payloads can be tried")
    now, ledger = datetime.now(UTC), time.time_ns()  # later calls have higher positions
    times = (now, "", 0, now, now.date())
    return [
        (name, 0, ledger, entry, -1, each.key or None, each.payload, {}, _time_of(each.event_time), *times)
        for entry, each in enumerate(map(message_of, messages))
    ]


def _time_of(epoch_millis: int) -> datetime | None:
    return datetime.fromtimestamp(epoch_millis / 1000, UTC) if epoch_millis else None


def _append(lake: Lake, topic: Topic, rows: Rows) -> None:
    table = bronze_table(topic)
    lake.create(table)
    if rows:
        landed = lake.spark.createDataFrame(rows, table.ddl)
        landed.write.format("delta").mode("append").save(lake.settings.table_path(table.name))


def _rows_of(settings: Settings, statement: str) -> Rows:
    return query(settings, statement).fetchall()
