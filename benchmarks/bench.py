"""What the benchmarks share: lakes with a backlog, and a clock that includes the CPU of child processes."""

import shutil
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from statistics import median

import psutil
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from pulsar_lakehouse.bronze.landing import bronze_table
from pulsar_lakehouse.domains.shop.workload import Workload
from pulsar_lakehouse.jobs.steps import enriching, merging
from pulsar_lakehouse.jobs.streams import Stream, catch_up
from pulsar_lakehouse.local import broker
from pulsar_lakehouse.pulsar.endpoint import Endpoint
from pulsar_lakehouse.pulsar.produce import produce
from pulsar_lakehouse.pulsar.topic_admin import create_topics
from pulsar_lakehouse.settings import Settings, load_settings
from pulsar_lakehouse.spark.session import start_spark, stop_spark
from pulsar_lakehouse.tables.lake import Lake
from tests.shop import ENRICHMENTS, ENTITIES, TOPICS

START = 1_767_225_600_000
"""2026-01-01T00:00Z in epoch milliseconds."""


@dataclass
class Lap:
    """Wall-clock seconds, and CPU seconds of this process and its children (the broker is none of them)."""

    wall: float = 0.0
    cpu: float = 0.0

    def seconds(self) -> tuple[str, str]:
        return f"{self.wall:.1f}", f"{self.cpu:.1f}"

    def rates(self, rows: int) -> tuple[str, str]:
        """Rows a second, and CPU microseconds a row."""
        return f"{rows / self.wall:,.0f}", f"{self.cpu / rows * 1e6:.1f}"


@contextmanager
def lap() -> Iterator[Lap]:
    measured = Lap()
    wall, cpu = time.monotonic(), cpu_seconds()
    yield measured
    measured.wall, measured.cpu = time.monotonic() - wall, cpu_seconds() - cpu


def middle(laps: Sequence[Lap]) -> Lap:
    return Lap(median(each.wall for each in laps), median(each.cpu for each in laps))


def total(laps: Iterable[Lap]) -> Lap:
    each = list(laps)
    return Lap(sum(lap.wall for lap in each), sum(lap.cpu for lap in each))


def caught_up(lake: Lake, streams: Sequence[Stream]) -> Lap:
    """The time in which streams do all that there is to do."""
    with lap() as measured:
        catch_up(lake.settings, streams)
    return measured


def emptied_home() -> Settings:
    """Settings with a home for benchmarks only, which is emptied first."""
    user = load_settings()
    settings = user.model_copy(update={"home": user.home / "benchmark", "warehouse": "", "checkpoints": ""})
    broker.stop(settings)
    shutil.rmtree(settings.home, ignore_errors=True)
    return settings


@contextmanager
def open_lake(settings: Settings | None = None) -> Iterator[Lake]:
    """A lake with Spark, by default in an emptied home; Spark is stopped at the end."""
    settings = settings or emptied_home()
    try:
        yield Lake(start_spark(settings), settings)
    finally:
        stop_spark()


def of_home(lake: Lake, name: str) -> Lake:
    """A lake in a folder of its own, with the same Spark."""
    return replace(lake, settings=lake.settings.model_copy(update={"home": lake.settings.home / name}))


@contextmanager
def backlog(workload: Workload) -> Iterator[tuple[Settings, Endpoint, dict[str, int]]]:
    """An embedded broker with the workload's first phase. Yields settings, endpoint, and message counts by topic."""
    settings = emptied_home()
    try:
        endpoint = broker.start(settings)
        create_topics(TOPICS, endpoint, settings)
        sent = produce([(topic, workload.first(topic.name)) for topic in TOPICS], endpoint, settings)
        yield settings, endpoint, sent
    finally:
        broker.stop(settings)


def bronze_rows(
    spark: SparkSession, topic: str, ids: range, *, key: Column, payload: Column, event_time: Column
) -> DataFrame:
    """Messages as landing writes them, one each millisecond. The columns are over `id`, the entry id."""
    published = F.timestamp_millis(F.lit(START) + F.col("id"))
    columns = {
        "topic": F.lit(topic),
        "partition": F.lit(0),
        "ledger_id": F.lit(1).cast("long"),
        "entry_id": F.col("id"),
        "batch_index": F.lit(-1),
        "key": key.cast("string"),
        "payload": payload.cast("binary"),
        "properties": F.create_map().cast("map<string,string>"),
        "event_time": event_time,
        "publish_time": published,
        "producer": F.lit("benchmark"),
        "schema_version": F.lit(0).cast("long"),
        "landed_at": published,
        "publish_date": F.to_date(published),
    }
    return spark.range(ids.start, ids.stop).select(*(value.alias(name) for name, value in columns.items()))


def land(lake: Lake, topic: str, ids: range, fields: dict[str, Column]) -> None:
    """Append messages to bronze, each with one entity or fact. `fields` are over `id`, the entry id."""
    created = {"createdAt": F.lit(START), **fields}
    payload = F.to_json(F.struct(*(value.alias(name) for name, value in created.items())))
    key, event_time = created.get("id", F.col("id")), F.timestamp_millis(created["createdAt"])
    rows = bronze_rows(lake.spark, topic, ids, key=key, payload=payload, event_time=event_time)
    lake.table(f"bronze.{topic}").append(rows)


def lakes(lake: Lake, sizes: Iterable[int]) -> dict[int, Lake]:
    """An empty lake for each size."""
    made = {size: of_home(lake, str(size)) for size in sizes}
    for own in made.values():
        for topic in TOPICS:
            own.create(bronze_table(topic))
    return made


def merge_and_enrich(lake: Lake) -> None:
    catch_up(lake.settings, merging(lake, ENTITIES))
    catch_up(lake.settings, enriching(lake, ENRICHMENTS))


def cpu_seconds(pid: int | None = None) -> float:
    """CPU seconds of a process, by default this one, and of all its children."""
    this = psutil.Process(pid)
    spent = 0.0
    for process in [this, *this.children(recursive=True)]:
        try:
            times = process.cpu_times()
        except psutil.NoSuchProcess:
            continue
        spent += times.user + times.system + times.children_user + times.children_system
    return spent
