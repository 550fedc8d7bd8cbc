"""From a backlog of orders to gold: orders per second and CPU microseconds per order, cold and warm.

    .venv/bin/python -m benchmarks pipeline [--orders 1000000] [--users 100000] [--rounds 3]

The first round is what a fresh process does once Spark is up: land all topics, merge users and items, enrich orders.
The others repeat that in the same process, with emptied tables. The CPU time of all steps is divided by the number of
orders. It does not include the broker.
"""

import shutil
from typing import Annotated

import typer

from benchmarks.bench import Lap, backlog, caught_up, middle, open_lake, total
from pulsar_lakehouse.cli import report
from pulsar_lakehouse.domains.shop.workload import Workload
from pulsar_lakehouse.jobs.steps import enriching, landing, merging, reconcile_all
from pulsar_lakehouse.tables.lake import Lake
from tests.shop import ENRICHMENTS, ENTITIES, TOPICS

STEPS = ("land", "merge", "enrich")


def main(
    orders: Annotated[int, typer.Option(help="Orders in the backlog.")] = 1_000_000,
    users: Annotated[int, typer.Option(help="Users, which all exist before orders are joined.")] = 100_000,
    rounds: Annotated[int, typer.Option(help="Warm repetitions; medians are shown.")] = 3,
) -> None:
    workload = Workload(users=users, orders=orders, late_users=0, duplicates=0, malformed=0)
    with backlog(workload) as (settings, _, _), open_lake(settings) as lake:
        cold = run_afresh(lake)
        warm = [run_afresh(lake) for _ in range(rounds)]
        report.reconciliation(reconcile_all(lake))
    medians = {step: middle([laps[step] for laps in warm]) for step in STEPS}
    rows = [
        (f"{name} {step}", it.seconds()[0], *it.rates(orders))
        for name, laps in (("cold", cold), ("warm", medians))
        for step, it in {**laps, "all": total(laps.values())}.items()
    ]
    report.rows(["", "seconds", "orders/s", "CPU µs/order"], rows, title=f"{orders:,} orders to gold")


def run_afresh(lake: Lake) -> dict[str, Lap]:
    shutil.rmtree(lake.settings.warehouse_root, ignore_errors=True)
    shutil.rmtree(lake.settings.checkpoint_root, ignore_errors=True)
    laps = {"land": caught_up(lake, landing(lake, TOPICS, take_over=True))}
    laps["merge"] = caught_up(lake, merging(lake, ENTITIES))
    laps["enrich"] = caught_up(lake, enriching(lake, ENRICHMENTS))
    return laps
