"""How long runs of the pipeline take in Airflow: one with a backlog, and one that finds nothing new.

    .venv/bin/python -m benchmarks airflow [--orders 10400] [--users 1000]

A local Airflow starts beside an embedded broker that has the messages. Its first run takes them; the next one, five
minutes after it at most, finds nothing new.
"""

import os
import time
from datetime import datetime
from typing import Annotated, Any

import requests
import typer

from benchmarks.bench import backlog
from pulsar_lakehouse.cli import report
from pulsar_lakehouse.domains.shop.workload import Workload
from pulsar_lakehouse.local import airflow

PATIENCE = 1_200.0
"""Seconds in which a run must end."""


def main(
    orders: Annotated[int, typer.Option(help="Orders in the backlog.")] = 10_400,
    users: Annotated[int, typer.Option(help="Users in the backlog; there are 2,198 items besides.")] = 1_000,
) -> None:
    with backlog(Workload(users=users, orders=orders)) as (settings, _, sent):
        os.environ["LAKEHOUSE_HOME"] = str(settings.home)
        try:
            found = airflow.start(settings)
            first = ended_run(found, 0)
            second = ended_run(found, 1)
        finally:
            airflow.stop(settings)
    report.rows(
        ["run", "seconds", "tasks"],
        [row(f"{sum(sent.values()):,} messages", *first), row("nothing new", *second)],
        title="Runs of the pipeline in Airflow",
    )


def ended_run(found: airflow.Airflow, number: int) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The pipeline's run of this number and its tasks, when it has ended. Raises TimeoutError after PATIENCE."""
    login = {"username": found.user, "password": found.password}
    token = requests.post(f"{found.url}/auth/token", json=login, timeout=60).json()["access_token"]
    runs = f"{found.url}/api/v2/dags/pipeline/dagRuns"

    def get(address: str) -> dict[str, Any]:
        answer = requests.get(address, headers={"Authorization": f"Bearer {token}"}, timeout=60)
        return dict(answer.json())

    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        known = get(f"{runs}?order_by=id").get("dag_runs", [])
        if len(known) > number and known[number]["state"] in ("success", "failed"):
            run = known[number]
            return run, get(f"{runs}/{run['dag_run_id']}/taskInstances")["task_instances"]
        time.sleep(1)
    raise TimeoutError(f"run {number} has not ended within {PATIENCE:g} s")


def row(name: str, run: dict[str, Any], tasks: list[dict[str, Any]]) -> list[str]:
    each = [f"{task['task_id']} {task['duration']:.0f}" for task in tasks if task["duration"]]
    queued, ended = (datetime.fromisoformat(run[name]) for name in ("queued_at", "end_date"))
    return [f"{name}: {run['state']}", f"{(ended - queued).total_seconds():.0f}", ", ".join(each)]
