"""The REST API of an Airflow that tests have started."""

import time
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import requests

from pulsar_lakehouse.local import airflow

RUNS = "dags/pipeline/dagRuns"
PATIENCE = 1_800.0
"""Seconds; a run takes one or two minutes on two idle cores."""


class Api:
    """The REST API of a running Airflow."""

    def __init__(self, found: airflow.Airflow) -> None:
        self.found = found
        self._session = requests.Session()
        self._session.trust_env = False
        login = {"username": found.user, "password": found.password}
        token = self._session.post(f"{found.url}/auth/token", json=login).json()["access_token"]
        self._session.headers["Authorization"] = f"Bearer {token}"

    def call(self, method: str, path: str, **body: Any) -> dict[str, Any]:
        answer = self._session.request(method, f"{self.found.url}/api/v2/{path}", json=body or None)
        assert answer.ok, f"{method} {path}: {answer.text}"
        return dict(answer.json())

    def of_pages(self, path: str) -> dict[str, Any]:
        """What the pages ask for, which is not part of the REST API."""
        return dict(self._session.get(f"{self.found.url}/ui/{path}").json())

    def log(self, path: str) -> list[dict[str, Any]]:
        """The lines of a try's log."""
        return [line for line in self.call("GET", path)["content"] if isinstance(line, dict)]

    def switch(self, dag: str, *, on: bool) -> None:
        self.call("PATCH", f"dags/{dag}?update_mask=is_paused", is_paused=not on)

    def clear(self, run: str, task: str) -> None:
        """Clear a task of a run and those below it, so that they run again."""
        self.call(
            "POST",
            "dags/pipeline/clearTaskInstances",
            dag_run_id=Path(run).name,
            task_ids=[task],
            dry_run=False,
            only_failed=False,
            include_downstream=True,
        )

    def backfilled(self, state: str) -> int:
        """How many runs of backfills are in this state."""
        runs = self.call("GET", f"dags/reprocess/dagRuns?run_type=backfill&state={state}")
        return int(runs["total_entries"])

    def fail_others(self, run: str) -> None:
        """Fail all running and queued runs of the pipeline except this one."""
        for other in self.call("GET", f"{RUNS}?state=running&state=queued")["dag_runs"]:
            if f"{RUNS}/{other['dag_run_id']}" != run:
                self.call("PATCH", f"{RUNS}/{other['dag_run_id']}", state="failed")

    def is_alone(self, run: str, task: str, state: str) -> bool:
        """Fail the other runs; returns whether the task is in this state."""
        self.fail_others(run)
        return bool(self.call("GET", task)["state"] == state)

    def has_ended(self, run: str) -> bool:
        return self.call("GET", run)["state"] in ("success", "failed")

    def scheduled(self) -> dict[str, Any]:
        """The first run of the pipeline that was not triggered by hand; empty if there is none yet."""
        runs = self.call("GET", f"{RUNS}?order_by=id")["dag_runs"]
        return next((run for run in runs if run["run_type"] != "manual"), {})

    def backlogs(self) -> list[dict[str, Any]]:
        """What each event of the asset `pulsar.backlog` says of the waiting messages."""
        events = self.call("GET", "assets/events?order_by=timestamp&limit=100")["asset_events"]
        return [event["extra"] for event in events if event["name"] == "pulsar.backlog"]

    def started_by_messages(self) -> list[datetime]:
        """The times of the events that have started runs of the pipeline."""
        runs = self.call("GET", f"{RUNS}?run_type=asset_triggered")["dag_runs"]
        return [datetime.fromisoformat(run["run_after"]) for run in runs]

    def has_dags(self) -> bool:
        return bool(self.call("GET", "dags")["total_entries"] == 3)


def wait_until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(2)
