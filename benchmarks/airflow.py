"""How long runs of the pipeline take in Airflow: with a backlog and Spark cold, with one and Spark warm, and without.

    .venv/bin/python -m benchmarks airflow [--orders 10400] [--users 1000] [--no-engine]

A local Airflow starts beside an embedded broker that has the messages. Its first run takes them. As many are sent then,
and start the second run. The next one, five minutes after it at most, finds nothing new.
"""

import os
from collections.abc import Callable
from datetime import datetime
from itertools import islice
from typing import Annotated, Any

import typer

from benchmarks.bench import backlog
from pulsar_lakehouse.cli import report
from pulsar_lakehouse.domains.shop.declarations.orders import ORDERS
from pulsar_lakehouse.domains.shop.workload import Workload
from pulsar_lakehouse.engine import control
from pulsar_lakehouse.local import airflow
from pulsar_lakehouse.pulsar.produce import produce
from pulsar_lakehouse.pulsar.topic_admin import create_published
from tests.airflow_api import RUNS, Api, wait_until
from tests.shop import SHOP, TOPICS


def main(
    orders: Annotated[int, typer.Option(help="Orders in each backlog.")] = 10_400,
    users: Annotated[int, typer.Option(help="Users in each backlog; there are 2,198 items besides.")] = 1_000,
    engine: Annotated[bool, typer.Option(help="Whether an engine keeps Spark warm.")] = True,
) -> None:
    workload = Workload(users=users, orders=orders)
    with backlog(workload) as (settings, endpoint, sent):
        os.environ["LAKEHOUSE_HOME"] = str(settings.home)
        create_published(SHOP.published_topics, endpoint, settings)
        if engine:
            control.start(settings)
        try:
            api, count = Api(airflow.start(settings)), f"{sum(sent.values()):,} messages"
            rows = [ended_run(api, f"{count}, Spark cold", lambda steps: "enrich" in steps)]
            again = {topic: workload.first(topic.name) for topic in TOPICS if topic.changelog}
            more = {ORDERS.topic: islice(workload.orders_from_now(1_000), orders)}
            produce([*again.items(), *more.items()], endpoint, settings)
            rows.append(ended_run(api, f"{count}, Spark warm", lambda steps: "enrich" in steps, after=rows[0][0]))
            rows.append(ended_run(api, "nothing new", lambda steps: steps == {"news"}, after=rows[1][0]))
        finally:
            airflow.stop(settings)
            control.stop(settings)
    report.rows(["run", "seconds", "tasks"], [row[1:] for row in rows], title="Runs of the pipeline in Airflow")


def ended_run(api: Api, name: str, is_meant: Callable[[set[str]], bool], *, after: str = "") -> tuple[str, ...]:
    """The first run that was queued after this time and has ended, with such steps that did something.

    Its queueing time, name, seconds since then, and the seconds of its tasks.
    """
    found: list[tuple[str, ...]] = []

    def has_ended() -> bool:
        for run in api.call("GET", "dags/~/dagRuns?order_by=id&limit=100")["dag_runs"]:  # its DAG may not be known yet
            if run["dag_id"] == "pipeline" and run["state"] in ("success", "failed") and run["queued_at"] > after:
                tasks = api.call("GET", f"{RUNS}/{run['dag_run_id']}/taskInstances")["task_instances"]
                if is_meant({task["task_id"] for task in tasks if task["state"] == "success"}):
                    found.append((run["queued_at"], *_row(name, run, tasks)))
        return bool(found)

    wait_until(has_ended)
    report.say(" | ".join(found[0]))
    return found[0]


def _row(name: str, run: dict[str, Any], tasks: list[dict[str, Any]]) -> tuple[str, ...]:
    queued, ended = (datetime.fromisoformat(run[time]) for time in ("queued_at", "end_date"))
    each = [f"{task['task_id']} {task['duration']:.0f}" for task in tasks if task["duration"]]
    return f"{name}: {run['state']}", f"{(ended - queued).total_seconds():.0f}", ", ".join(each)
