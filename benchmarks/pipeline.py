"""From a backlog of orders to gold: orders per second and CPU microseconds per order, cold and warm.

    .venv/bin/python benchmarks/pipeline.py [--orders 1000000] [--users 100000] [--rounds 3]

The first round is what a fresh process does once Spark is up: land all topics, merge users and items, enrich orders.
The others repeat that in the same process, with emptied tables. The CPU time of all steps is divided by the number of
orders. It does not include the broker.
"""

import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

sys.path.insert(0, str(Path(__file__).parent.parent))

import typer

from benchmarks.bench import Lap, backlog, lap, middle
from pulsar_lakehouse.cli import report
from pulsar_lakehouse.domains.shop.workload import Workload
from pulsar_lakehouse.jobs.steps import enriching, landing, merging, reconcile_all
from pulsar_lakehouse.jobs.streams import Stream, catch_up
from pulsar_lakehouse.settings import Settings
from pulsar_lakehouse.spark.session import start_spark, stop_spark
from pulsar_lakehouse.tables.lake import Lake
from tests.shop import ENRICHMENTS, ENTITIES, TOPICS

STEPS = ("land", "merge", "enrich")


def main(
    orders: Annotated[int, typer.Option(help="Orders in the backlog.")] = 1_000_000,
    users: Annotated[int, typer.Option(help="Users, which all exist before orders are joined.")] = 100_000,
    rounds: Annotated[int, typer.Option(help="Warm repetitions; medians are shown.")] = 3,
) -> None:
    workload = Workload(users=users, orders=orders, late_users=0, duplicates=0, malformed=0)
    with backlog(workload) as (settings, _, _):
        spark = start_spark(settings)
        try:
            cold = run_afresh(Lake(spark, settings))
            warm = [run_afresh(Lake(spark, settings)) for _ in range(rounds)]
            report.reconciliation(reconcile_all(Lake(spark, settings)))
        finally:
            stop_spark()
    show(orders, cold, {step: middle([laps[step] for laps in warm]) for step in STEPS})


def run_afresh(lake: Lake) -> dict[str, Lap]:
    shutil.rmtree(lake.settings.warehouse_root, ignore_errors=True)
    shutil.rmtree(lake.settings.checkpoint_root, ignore_errors=True)
    laps = {"land": timed(lake.settings, landing(lake, TOPICS, take_over=True))}
    laps["merge"] = timed(lake.settings, merging(lake, ENTITIES))
    laps["enrich"] = timed(lake.settings, enriching(lake, ENRICHMENTS))
    return laps


def timed(settings: Settings, streams: Sequence[Stream]) -> Lap:
    with lap() as measured:
        catch_up(settings, streams)
    return measured


def show(orders: int, cold: dict[str, Lap], warm: dict[str, Lap]) -> None:
    def total(laps: dict[str, Lap]) -> Lap:
        return Lap(sum(each.wall for each in laps.values()), sum(each.cpu for each in laps.values()))

    rows = []
    for name, laps in (("cold", cold), ("warm", warm)):
        for step, it in {**laps, "all": total(laps)}.items():
            rows.append(
                (f"{name} {step}", f"{it.wall:.1f}", f"{orders / it.wall:,.0f}", f"{it.cpu / orders * 1e6:.1f}")
            )
    report.rows(["", "seconds", "orders/s", "CPU µs/order"], rows, title=f"{orders:,} orders to gold")


if __name__ == "__main__":
    typer.run(main)
