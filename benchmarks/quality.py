"""What validating the tables costs, as a share of the run that made them.

    .venv/bin/python -m benchmarks quality [--orders 1000000] [--users 100000] [--rounds 2] [--times 5]

All in one process: a cold run of the whole pipeline on a backlog, and a warm one with emptied tables. After each, all
tables are validated as a whole. Then follow runs of a few more orders, each with the validation of the rows that it
added, and another one with nothing new.
"""

from itertools import islice
from statistics import median
from typing import Annotated, NamedTuple

import typer

from benchmarks.bench import Lap, backlog, lap, middle, open_lake, total
from benchmarks.pipeline import run_afresh
from pulsar_lakehouse.cli import report
from pulsar_lakehouse.domains.shop.workload import Workload
from pulsar_lakehouse.expectations.validation import validate
from pulsar_lakehouse.jobs.steps import run_all
from pulsar_lakehouse.pulsar.endpoint import Endpoint
from pulsar_lakehouse.pulsar.produce import produce
from pulsar_lakehouse.tables.lake import Lake
from tests.shop import SUITES, TOPICS


class Later(NamedTuple):
    """A run, the validation of its rows, one after that with nothing new, and the number of Spark jobs of the first."""

    run: Lap
    new: Lap
    nothing: Lap
    jobs: int


def main(
    orders: Annotated[int, typer.Option(help="Orders in the backlog.")] = 1_000_000,
    users: Annotated[int, typer.Option(help="Users, which all exist before orders are joined.")] = 100_000,
    rounds: Annotated[int, typer.Option(help="Runs, each with emptied tables.")] = 2,
    more: Annotated[int, typer.Option(help="Orders of a run after which only new rows are validated.")] = 10_000,
    times: Annotated[int, typer.Option(help="Such runs, of which medians are shown.")] = 5,
) -> None:
    workload = Workload(users=users, orders=orders, late_users=0)
    rows = []
    with backlog(workload) as (settings, endpoint, _), open_lake(settings) as lake:
        for number in range(rounds):
            name = "warm" if number else "cold"
            run = total(run_afresh(lake).values())
            with lap() as whole:
                results = validate(lake, SUITES)
            rows += [_row(f"{name} run", run, run), _row(f"{name} validation of the whole tables", whole, run)]
        report.quality(results)
        later = [run_later(lake, endpoint, workload, more) for _ in range(times)]
        runs, new, nothing, jobs = zip(*later, strict=True)
        run = middle(runs)
        rows += [_row(f"run of {more:,} orders more", run, run)]
        rows += [_row(f"validation of the new rows, {median(jobs):.0f} jobs", middle(new), run)]
        rows += [_row("validation with nothing new", middle(nothing), run)]
    report.rows(["", "seconds", "CPU seconds", "share of the time", "of the CPU"], rows, title=f"{orders:,} orders")


def run_later(lake: Lake, endpoint: Endpoint, workload: Workload, orders: int) -> Later:
    """A run of more orders, and the validation of the rows that it added."""
    few = islice(workload.orders_from_now(1_000), orders)
    produce([(topic, few) for topic in TOPICS if topic.name == "orders"], endpoint, lake.settings)
    scheduler = lake.spark.sparkContext._jsc.sc().dagScheduler()
    with lap() as run:
        report.outcomes(run_all(lake), lake.settings)
    before = scheduler.nextJobId()
    with lap() as validation:
        validate(lake, SUITES, only_new=True)
    jobs = scheduler.nextJobId() - before
    with lap() as nothing:
        validate(lake, SUITES, only_new=True)
    return Later(run, validation, nothing, jobs)


def _row(name: str, it: Lap, run: Lap) -> tuple[str, ...]:
    return name, *it.seconds(), f"{it.wall / run.wall:.0%}", f"{it.cpu / run.cpu:.0%}"
