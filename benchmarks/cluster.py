"""A backlog on a Spark cluster of this machine, with one and with two executors of one core each.

    .venv/bin/python -m benchmarks cluster [--orders 500000] [--users 50000] [--rounds 3]

One application first has one executor, then two, then one again, as the driver becomes faster in the course of time.
With two executors, a backlog of the same size is read that is skewed: half of the orders are those of one user, and
all of them are on one partition. The first round of each kind is not counted. The broker, the driver and the
executors share the cores of this machine, so the ratios say more than the speeds.
"""

from typing import Annotated

import typer

from benchmarks.bench import Lap, backlog, middle, open_lake
from benchmarks.pipeline import STEPS, run_afresh
from pulsar_lakehouse.cli import report
from pulsar_lakehouse.domains.shop.workload import Workload
from pulsar_lakehouse.jobs.steps import reconcile_all
from pulsar_lakehouse.pulsar.produce import produce
from pulsar_lakehouse.settings import Settings
from pulsar_lakehouse.tables.lake import Lake
from tests.cluster import Cluster, skewed
from tests.lake import own_topics
from tests.shop import TOPICS

PROPERTIES = {"spark.executor.memory": "2g", "spark.sql.shuffle.partitions": "2"}


def main(
    orders: Annotated[int, typer.Option(help="Orders in each backlog.")] = 500_000,
    users: Annotated[int, typer.Option(help="Users, which all exist before orders are joined.")] = 50_000,
    rounds: Annotated[int, typer.Option(help="Warm repetitions; medians are shown.")] = 3,
) -> None:
    workload = Workload(users=users, orders=orders, late_users=0, duplicates=0, malformed=0)
    with backlog(workload) as (settings, endpoint, _):
        uneven = own_topics(settings, endpoint, settings.home / "skewed")
        produce([(topic, skewed(workload, topic.name)) for topic in TOPICS], endpoint, uneven)
        cluster = Cluster(settings.home / "cluster")
        try:
            cluster.start(workers=1)
            show(orders, compare(cluster, settings, uneven, rounds))
        finally:
            cluster.kill()


def compare(cluster: Cluster, even: Settings, uneven: Settings, rounds: int) -> dict[str, dict[str, Lap]]:
    own = even.spark.model_copy(update={"master": cluster.master, "conf": PROPERTIES | even.spark.conf})
    with open_lake(even.model_copy(update={"spark": own})) as lake:
        found = {"one executor": measured(lake, rounds)}
        cluster.add_worker()
        cluster.wait_for_executors(2)
        found["two executors"] = measured(lake, rounds)
        found["two executors, skewed"] = measured(Lake(lake.spark, uneven), rounds)
        cluster.lose_worker()
        found["one executor again"] = measured(lake, rounds)
        report.reconciliation(reconcile_all(lake))
    return found


def measured(lake: Lake, rounds: int) -> dict[str, Lap]:
    _, *warm = [run_afresh(lake) for _ in range(1 + rounds)]
    return {step: middle([laps[step] for laps in warm]) for step in STEPS}


def show(orders: int, found: dict[str, dict[str, Lap]]) -> None:
    rows, first = [], next(iter(found.values()))
    for name, laps in found.items():
        for step, it in laps.items():
            rows.append((f"{name}: {step}", *it.rates(orders), f"{first[step].wall / it.wall:.2f}"))
    report.rows(["", "orders/s", "CPU µs/order", "speed, to one executor's"], rows, title=f"{orders:,} orders to gold")
