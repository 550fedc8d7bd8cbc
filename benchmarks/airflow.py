"""How long runs of the pipeline take in Airflow: one with a backlog, and one that finds nothing new.

    .venv/bin/python -m benchmarks airflow [--orders 10400] [--users 1000]

A local Airflow starts beside an embedded broker that has the messages. Its first run takes them; the next one, five
minutes after it at most, finds nothing new.
"""

import os
from datetime import datetime
from typing import Annotated

import typer

from benchmarks.bench import backlog
from pulsar_lakehouse.cli import report
from pulsar_lakehouse.domains.shop.workload import Workload
from pulsar_lakehouse.local import airflow
from tests.airflow_api import RUNS, Api, wait_until


def main(
    orders: Annotated[int, typer.Option(help="Orders in the backlog.")] = 10_400,
    users: Annotated[int, typer.Option(help="Users in the backlog; there are 2,198 items besides.")] = 1_000,
) -> None:
    with backlog(Workload(users=users, orders=orders)) as (settings, _, sent):
        os.environ["LAKEHOUSE_HOME"] = str(settings.home)
        try:
            api = Api(airflow.start(settings))
            rows = [ended_run(api, 0, f"{sum(sent.values()):,} messages"), ended_run(api, 1, "nothing new")]
        finally:
            airflow.stop(settings)
    report.rows(["run", "seconds", "tasks"], rows, title="Runs of the pipeline in Airflow")


def ended_run(api: Api, number: int, name: str) -> list[str]:
    """The pipeline's run of this number, once it has ended: its state, seconds since it was queued, and tasks."""

    def has_ended() -> bool:
        runs = api.call("GET", f"{RUNS}?order_by=id")["dag_runs"]
        return len(runs) > number and runs[number]["state"] in ("success", "failed")

    wait_until(has_ended)
    run = api.call("GET", f"{RUNS}?order_by=id")["dag_runs"][number]
    tasks = api.call("GET", f"{RUNS}/{run['dag_run_id']}/taskInstances")["task_instances"]
    queued, ended = (datetime.fromisoformat(run[time]) for time in ("queued_at", "end_date"))
    each = [f"{task['task_id']} {task['duration']:.0f}" for task in tasks if task["duration"]]
    return [f"{name}: {run['state']}", f"{(ended - queued).total_seconds():.0f}", ", ".join(each)]
