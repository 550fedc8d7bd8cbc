"""Landing in bronze, compared with the raw client's `batch_receive` on the same topic in the same run.

.venv/bin/python -m benchmarks land [--orders 1000000] [--rounds 3]
"""

import shutil
import time
from concurrent.futures import ProcessPoolExecutor
from typing import Annotated

import pulsar
import typer

from benchmarks.bench import Lap, backlog, caught_up, lap, middle, open_lake
from pulsar_lakehouse.cli import report
from pulsar_lakehouse.domains.shop.declarations.orders import ORDERS_TOPIC
from pulsar_lakehouse.domains.shop.workload import Workload
from pulsar_lakehouse.jobs.steps import landing
from pulsar_lakehouse.tables.lake import Lake

BATCH = 10_000


def main(
    orders: Annotated[int, typer.Option(help="Orders in the backlog, on two partitions.")] = 1_000_000,
    rounds: Annotated[int, typer.Option(help="Repetitions of each, in turn, after one warm-up.")] = 3,
) -> None:
    with backlog(Workload(users=1, orders=orders)) as (settings, endpoint, sent):
        messages = sent["orders"]
        topic = f"persistent://{settings.pulsar.namespace}/orders"
        partitions = [f"{topic}-partition-{index}" for index in range(settings.pulsar.partitions)]
        with open_lake(settings) as lake:
            land_afresh(lake)
            one, each, landed = [], [], []
            for _ in range(rounds):
                one.append(receive_all(endpoint.service_url, [topic], messages))
                each.append(receive_all(endpoint.service_url, partitions, messages))
                landed.append(land_afresh(lake))
    show(messages, middle(one), middle(each), middle(landed))


def receive_all(service_url: str, topics: list[str], messages: int) -> Lap:
    """Receive everything, with a process for each of `topics`. The time begins with the first message."""
    with ProcessPoolExecutor(len(topics)) as pool, lap() as measured:
        received = list(pool.map(receive, [service_url] * len(topics), topics, [messages] * len(topics)))
    assert sum(count for count, _ in received) == messages
    measured.wall = max(seconds for _, seconds in received)
    return measured


def receive(service_url: str, topic: str, at_most: int) -> tuple[int, float]:
    """The number of messages received until the topic is drained, and the seconds from the first batch to the last."""
    client = pulsar.Client(service_url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    consumer = client.subscribe(
        topic,
        "benchmark",
        initial_position=pulsar.InitialPosition.Earliest,
        receiver_queue_size=BATCH,
        batch_receive_policy=pulsar.ConsumerBatchReceivePolicy(BATCH, -1, 2_000),
    )
    began = ended = time.monotonic()
    count = 0
    while count < at_most and (batch := consumer.batch_receive()):
        began = began if count else time.monotonic()
        count += len(batch)
        ended = time.monotonic()
    consumer.unsubscribe()
    client.close()
    return count, ended - began


def land_afresh(lake: Lake) -> Lap:
    """Land the whole topic in an empty table."""
    shutil.rmtree(lake.settings.table_path(ORDERS_TOPIC.bronze_table), ignore_errors=True)
    shutil.rmtree(lake.settings.checkpoint_path(ORDERS_TOPIC.bronze_table), ignore_errors=True)
    return caught_up(lake, landing(lake, [ORDERS_TOPIC]))


def show(messages: int, one: Lap, each: Lap, landed: Lap) -> None:
    laps = {
        "batch_receive, one process": one,
        "batch_receive, a process for each partition": each,
        "landing in Delta": landed,
    }
    rows = [(name, *it.rates(messages), f"{it.wall / landed.wall:.2f}") for name, it in laps.items()]
    columns = ["", "rows/s", "CPU µs/row", "landing's ratio"]
    report.rows(columns, rows, title=f"{messages:,} orders on 2 partitions; medians")
