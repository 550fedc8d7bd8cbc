"""How old a tenant's orders are when they reach gold, alone and beside a tenant that is flooded, on the same machine.

    .venv/bin/python -m benchmarks tenants [--rate 200] [--flood 300000] [--seconds 60]

One tenant runs `lakehouse run --every 1s`, and gets orders at a steady rate. Then another one works off a backlog, once
for each way to bound it. What counts are the orders that are sent while it does, from its first batch on.
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import takewhile
from threading import Event, Thread
from typing import Annotated

import typer

from benchmarks.bench import emptied_home
from benchmarks.freshness import ages, running, spread, until_rows
from pulsar_lakehouse.cli import report
from pulsar_lakehouse.domains.shop.declarations.orders import ORDERS
from pulsar_lakehouse.domains.shop.workload import Workload
from pulsar_lakehouse.local import broker
from pulsar_lakehouse.pulsar.endpoint import Endpoint
from pulsar_lakehouse.pulsar.produce import produce
from pulsar_lakehouse.settings import Settings
from tests.lake import own_topics
from tests.shop import TOPICS

ALL_JOIN = Workload(late_users=0, missing_users=0, missing_items=0, duplicates=0, malformed=0)
SETTLING = 15
"""Seconds in which the last orders reach gold, and the machine becomes quiet."""
BOUNDS: Mapping[str, tuple[Sequence[str], Mapping[str, str]]] = {
    "not bounded": ((), {}),
    "`LAKEHOUSE_SPARK__MASTER=local[1]`": ((), {"LAKEHOUSE_SPARK__MASTER": "local[1]"}),
    "`nice -n 19`": (("nice", "-n", "19"), {}),
    "`taskset -c 0`": (("taskset", "-c", "0"), {}),
}
"""The words before the command, and the settings of the neighbour."""


def main(
    rate: Annotated[int, typer.Option(help="Orders a second of the tenant that is measured.")] = 200,
    flood: Annotated[int, typer.Option(help="Orders that wait for its neighbour.")] = 300_000,
    seconds: Annotated[int, typer.Option(help="Seconds that count of those in which it is alone.")] = 60,
    warm_up: Annotated[int, typer.Option(help="Seconds of warm-up, which do not count.")] = 90,
) -> None:
    settings = emptied_home()
    calm = replace(ALL_JOIN, orders=rate)
    found = []
    try:
        endpoint = broker.start(settings)
        acme = tenant(settings, endpoint, "acme", calm)
        with running(acme) as process, steady(acme, endpoint, calm, rate):
            until_rows(acme, 1, process, ORDERS.gold_table)
            time.sleep(warm_up)
            began = time.time()
            time.sleep(seconds + SETTLING)
            found.append(["alone", *told(acme, began, began + seconds), ""])
            for name, (words, given) in BOUNDS.items():
                globex = tenant(settings, endpoint, f"globex{len(found)}", replace(ALL_JOIN, orders=flood))
                time.sleep(SETTLING)
                began, until = work_off(globex, flood, words, given)
                time.sleep(SETTLING)
                found.append([name, *told(acme, began, until), f"{until - began:.0f}"])
                report.say(" | ".join(found[-1]))
    finally:
        broker.stop(settings)
    columns = ["the neighbour", "orders", "p50 s", "p95 s", "seconds of the neighbour"]
    report.rows(columns, found, title=f"Age in gold, {rate:,} orders a second, beside {flood:,} of another tenant")


def tenant(settings: Settings, endpoint: Endpoint, name: str, workload: Workload) -> Settings:
    """A tenant, to which the first phase of a workload was sent."""
    lake = own_topics(settings, endpoint, settings.home / name, tenant=name)
    produce([(topic, workload.first(topic.name)) for topic in TOPICS], endpoint, lake)
    return lake


@contextmanager
def steady(lake: Settings, endpoint: Endpoint, workload: Workload, rate: int) -> Iterator[None]:
    """Orders come at this rate, a second, while the block runs."""
    over = Event()
    orders = takewhile(lambda _: not over.is_set(), workload.orders_from_now(rate))
    thread = Thread(target=produce, args=([(ORDERS.topic, orders)], endpoint, lake), kwargs={"rate": rate})
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def work_off(lake: Settings, orders: int, words: Sequence[str], given: Mapping[str, str]) -> tuple[float, float]:
    """Run a tenant until its orders have their places; returns when its first batch landed, and now (epoch seconds)."""
    with running(lake, words, given) as process:
        until_rows(lake, 1, process, ORDERS.topic.bronze_table)
        began = time.time()
        until_rows(lake, orders, process, ORDERS.gold_table, ORDERS.waiting.name)
        return began, time.time()


def told(lake: Settings, since: float, until: float) -> list[str]:
    """How many orders were sent between two times (epoch seconds), and their median and 95th percentile in seconds."""
    return spread(ages(lake, since=since, until=until), 0.5, 0.95)
