"""Publishing gold, compared with raw producers of the same payloads on the same broker in the same run.

    .venv/bin/python -m benchmarks publish [--orders 200000] [--rounds 3]

Raw producers are one process for each partition, which sends what it has in memory: keyed, batched and compressed in
the same way, but without sequence ids, to a topic without deduplication.
"""

import time
from concurrent.futures import ProcessPoolExecutor
from queue import SimpleQueue
from typing import Annotated

import pulsar
import typer

from benchmarks.bench import Lap, backlog, caught_up, lap, merge_and_enrich, middle, open_lake
from pulsar_lakehouse.cli import report
from pulsar_lakehouse.domains.shop.declarations.orders import ORDERS
from pulsar_lakehouse.domains.shop.workload import Workload
from pulsar_lakehouse.gold.sinks.topic import to_messages
from pulsar_lakehouse.jobs.delivery import publishing
from pulsar_lakehouse.jobs.steps import landing
from pulsar_lakehouse.jobs.streams import catch_up
from pulsar_lakehouse.pulsar.endpoint import Endpoint, call_admin
from pulsar_lakehouse.pulsar.produce import BATCH_BYTES, PENDING
from pulsar_lakehouse.pulsar.topic_admin import create_published
from pulsar_lakehouse.settings import Settings
from pulsar_lakehouse.tables.lake import Lake
from tests.shop import PUBLISHED, TOPICS

Payloads = list[tuple[str, bytes]]


def main(
    orders: Annotated[int, typer.Option(help="Orders in gold, for two partitions.")] = 200_000,
    rounds: Annotated[int, typer.Option(help="Repetitions of each, in turn, after one warm-up.")] = 3,
) -> None:
    workload = Workload(users=max(orders // 10, 1), orders=orders, late_users=0, duplicates=0, malformed=0)
    with backlog(workload) as (settings, endpoint, _), open_lake(settings) as lake:
        catch_up(settings, landing(lake, TOPICS))
        merge_and_enrich(lake)
        payloads = payloads_of(lake)
        publish_afresh(lake, endpoint)
        raw, published = [], []
        for _ in range(rounds):
            raw.append(send_all(settings, endpoint, payloads))
            published.append(publish_afresh(lake, endpoint))
    show(payloads, middle(raw), middle(published))


def payloads_of(lake: Lake) -> list[Payloads]:
    """What is published, by partition."""
    feed = lake.spark.read.format("delta").option("readChangeFeed", True).option("startingVersion", 0)
    changes = feed.load(lake.settings.table_path(ORDERS.gold_table))
    messages = changes.transform(
        to_messages, keys=ORDERS.keys, order_by=["position"], partitions=lake.settings.pulsar.partitions
    )
    found: list[Payloads] = [[] for _ in range(lake.settings.pulsar.partitions)]
    for row in messages.collect():
        found[row.target].append((row.key, bytes(row.payload)))
    return found


def send_all(settings: Settings, endpoint: Endpoint, payloads: list[Payloads]) -> Lap:
    """Send everything, with a process for each partition. The time begins with the first message."""
    topics = [f"persistent://{settings.pulsar.namespace}/raw-{index}" for index in range(len(payloads))]
    with ProcessPoolExecutor(len(payloads)) as pool, lap() as measured:
        seconds = list(pool.map(send, [endpoint.service_url] * len(topics), topics, payloads))
    measured.wall = max(wall for wall, _ in seconds)
    measured.cpu = sum(cpu for _, cpu in seconds)
    return measured


def send(service_url: str, topic: str, payloads: Payloads) -> tuple[float, float]:
    """The wall-clock and CPU seconds from the first message to the last acknowledgement."""
    client = pulsar.Client(service_url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    producer = client.create_producer(
        topic,
        block_if_queue_full=True,
        max_pending_messages=PENDING,
        batching_enabled=True,
        batching_max_messages=1_000,
        batching_max_allowed_size_in_bytes=BATCH_BYTES,
        batching_max_publish_delay_ms=10,
        compression_type=pulsar.CompressionType.LZ4,
    )
    acknowledged: SimpleQueue[pulsar.Result] = SimpleQueue()
    wall, cpu = time.monotonic(), time.process_time()
    for key, payload in payloads:
        producer.send_async(payload, acknowledged.put, partition_key=key)
    assert all(acknowledged.get() == pulsar.Result.Ok for _ in payloads)
    took = time.monotonic() - wall, time.process_time() - cpu
    client.close()
    return took


def publish_afresh(lake: Lake, endpoint: Endpoint) -> Lap:
    """Publish the whole table to an empty topic."""
    path = f"persistent/{lake.settings.pulsar.namespace}/{ORDERS.publish_to}/partitions?force=true"
    call_admin("DELETE", path, endpoint, lake.settings, accept=(404,))
    create_published(PUBLISHED, endpoint, lake.settings)
    return caught_up(lake, publishing(lake, [ORDERS]))


def show(payloads: list[Payloads], raw: Lap, published: Lap) -> None:
    messages = sum(map(len, payloads))
    size = sum(len(payload) for part in payloads for _, payload in part) / messages
    laps = {"raw producers, one for each partition": raw, "publishing gold": published}
    rows = [(name, *it.rates(messages), f"{it.wall / published.wall:.2f}") for name, it in laps.items()]
    title = f"{messages:,} messages of {size:,.0f} bytes on {len(payloads)} partitions; medians"
    report.rows(["", "messages/s", "CPU µs/message", "publishing's ratio"], rows, title=title)
