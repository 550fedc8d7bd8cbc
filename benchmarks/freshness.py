"""How old orders are when they reach gold under `lakehouse run --every`: from publish time to commit.

    .venv/bin/python -m benchmarks freshness [--rate 1000] [--every 2s] [--seconds 120] [--warm-up 90]

Orders are sent at a steady rate, with some changes of users and prices each second. All users and items exist before.
Orders sent during the warm-up do not count.
"""

import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import count, islice
from pathlib import Path
from types import MappingProxyType
from typing import Annotated

import duckdb
import psutil
import typer
from deltalake import DeltaTable

from benchmarks.bench import backlog, cpu_seconds
from pulsar_lakehouse.cli import report
from pulsar_lakehouse.domains.shop.declarations.orders import ORDERS
from pulsar_lakehouse.domains.shop.workload import ITEMS, Workload
from pulsar_lakehouse.local.processes import end
from pulsar_lakehouse.pulsar.endpoint import Endpoint
from pulsar_lakehouse.pulsar.produce import Message, produce
from pulsar_lakehouse.settings import Settings
from pulsar_lakehouse.tables.stored import is_stored, stored_table
from tests.lake import environment
from tests.shop import TOPICS

LAKEHOUSE = Path(sys.executable).with_name("lakehouse")


def main(
    rate: Annotated[int, typer.Option(help="Orders a second.")] = 1_000,
    users: Annotated[int, typer.Option(help="Users that exist before.")] = 100_000,
    user_changes: Annotated[int, typer.Option(help="Changes of users a second.")] = 20,
    price_changes: Annotated[int, typer.Option(help="Changes of prices a second.")] = 2,
    every: Annotated[str, typer.Option(help="Passed to `lakehouse run --every`.")] = "2s",
    warm_up: Annotated[int, typer.Option(help="Seconds of warm-up, which do not count.")] = 90,
    seconds: Annotated[int, typer.Option(help="Seconds that count.")] = 120,
) -> None:
    workload = Workload(users=users, orders=rate, late_users=0)
    with backlog(workload) as (settings, endpoint, _):
        with running(settings, every=every) as run:
            until_rows(settings, 1, run, ORDERS.gold_table)
            begin, rates = time.time(), (rate, user_changes, price_changes)
            busy = send(workload, endpoint, settings, rates, warm_up, seconds, run.pid)
            time.sleep(30)
        latencies = ages(settings, since=begin + warm_up, until=begin + warm_up + seconds)
    row = [*spread(latencies, 0.5, 0.95, 0.99), f"{busy:.2f}"]
    columns = ["orders", "p50 s", "p95 s", "p99 s", "cores busy"]
    report.rows(columns, [row], title=f"Age in gold, {rate:,} orders a second, every {every}")


@contextmanager
def running(
    lake: Settings, words: Sequence[str] = (), given: Mapping[str, str] = MappingProxyType({}), *, every: str = "1s"
) -> Iterator[subprocess.Popen[bytes]]:
    """`lakehouse run --every` of a lake, in a session of its own, as of another user or service."""
    own = {**os.environ, **environment(lake, LAKEHOUSE_SPARK__CONF="{}"), **given}
    command = [*words, str(LAKEHOUSE), "run", "--every", every]
    process = subprocess.Popen(command, env=own, stderr=subprocess.DEVNULL, start_new_session=True)
    try:
        yield process
    finally:
        end([psutil.Process(process.pid)], 60)
        process.wait()


def until_rows(lake: Settings, least: int, process: subprocess.Popen[bytes], *names: str) -> None:
    """Wait until those of the tables that exist have so many rows."""
    while sum(stored_table(lake, name).count() for name in names if is_stored(lake, name)) < least:
        if process.poll() is not None:
            raise SystemExit("the pipeline has ended")
        time.sleep(0.5)


def send(
    workload: Workload,
    endpoint: Endpoint,
    settings: Settings,
    rates: Sequence[int],
    warm_up: int,
    seconds: int,
    pid: int,
) -> float:
    """Send orders, and changes of users and prices, at their rates; returns how many cores the pipeline kept busy."""
    topics = {topic.name: topic for topic in TOPICS}
    sources = (workload.orders_from_now(rates[0]), user_updates(workload.users), price_updates())
    total = warm_up + seconds
    with ThreadPoolExecutor(len(rates)) as pool:
        sent = [
            pool.submit(produce, [(topics[name], islice(messages, rate * total))], endpoint, settings, rate=rate)
            for name, messages, rate in zip(("orders", "users", "items"), sources, rates, strict=True)
        ]
        time.sleep(warm_up)
        before = cpu_seconds(pid)
        for each in sent:
            each.result()
        return (cpu_seconds(pid) - before) / seconds


def user_updates(users: int) -> Iterator[Message]:
    for number in count():
        now, id = int(time.time() * 1000), random.randint(1, users)
        row = {"id": id, "firstName": f"Ann {number}", "lastName": "Lee", "createdAt": now - 10**9, "deletedAt": -1}
        yield Message(str(id), json.dumps(row | {"mergedAt": -1, "parentUserId": -1}).encode(), now)


def price_updates() -> Iterator[Message]:
    while True:
        item = random.choice(ITEMS)
        yield item.message(round(random.uniform(1, 100), 2), int(time.time() * 1000))


def spread(seconds: Sequence[float], *parts: float) -> list[str]:
    """How many values there are, which ascend, and those below which these parts of them are."""
    return [f"{len(seconds):,}", *(f"{seconds[int(len(seconds) * part)]:.1f}" for part in parts)]


def ages(settings: Settings, *, since: float, until: float) -> list[float]:
    """Seconds from publish time to commit, ascending, of the orders published between the two times (epoch seconds)."""
    gold = DeltaTable(settings.table_path(ORDERS.gold_table))
    added = gold.load_cdf(starting_version=1, columns=["position", "_change_type", "_commit_timestamp"]).read_all()
    landed = DeltaTable(settings.table_path(ORDERS.topic.bronze_table)).to_pyarrow_dataset()
    found = (
        duckdb.connect()
        .register("added", added)
        .register("landed", landed)
        .execute(
            """
        SELECT epoch(min(_commit_timestamp)) - epoch(any_value(publish_time)) AS age
        FROM landed JOIN added ON position = {
            'partition': partition, 'ledger_id': ledger_id, 'entry_id': entry_id, 'batch_index': batch_index
        }
        WHERE _change_type = 'insert' AND epoch(publish_time) BETWEEN ? AND ?
        GROUP BY position ORDER BY age
        """,
            [since, until],
        )
    )
    return [age for (age,) in found.fetchall()]
