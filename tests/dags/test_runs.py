"""The pipeline as Airflow runs it, on a real broker and real Spark: what the tables hold is what the oracle says."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import psutil
import pytest
import requests
from deltalake import DeltaTable

from jobs.pipeline import TOPICS
from lakehouse import airflow
from lakehouse.endpoint import Endpoint
from lakehouse.leases import write_lease
from lakehouse.produce import produce
from lakehouse.settings import Settings
from lakehouse.status import table_statuses
from lakehouse.workload import Workload
from tests.lake import environment, expected, messages, own_topics, tables
from tests.oracle import Oracle

MESSY = Workload(users=100, orders=1_000, late_users=0.2, missing_users=0.05, duplicates=0.1, malformed=0.1)
RUNS = "dags/pipeline/dagRuns"
PATIENCE = 900.0
"""Seconds; a run takes one or two minutes on two idle cores."""


@pytest.fixture(scope="module")
def lake(settings: Settings, endpoint: Endpoint, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Settings]:
    lake = own_topics(settings, endpoint, tmp_path_factory.mktemp("dags"))
    with pytest.MonkeyPatch.context() as patch:
        for name, value in environment(lake, LAKEHOUSE_SPARK__MEMORY="1g").items():
            patch.setenv(name, value)
        yield lake


@pytest.fixture(scope="module")
def oracle() -> Oracle:
    return Oracle()


class Api:
    """The REST API of a running Airflow."""

    def __init__(self, found: airflow.Airflow) -> None:
        self._url = found.url
        self._session = requests.Session()
        self._session.trust_env = False
        login = {"username": found.user, "password": found.password}
        token = self._session.post(f"{found.url}/auth/token", json=login).json()["access_token"]
        self._session.headers["Authorization"] = f"Bearer {token}"

    def call(self, method: str, path: str, **body: Any) -> dict[str, Any]:
        answer = self._session.request(method, f"{self._url}/api/v2/{path}", json=body or None)
        assert answer.ok, f"{method} {path}: {answer.text}"
        return dict(answer.json())

    def switch(self, dag: str, *, on: bool) -> None:
        self.call("PATCH", f"dags/{dag}?update_mask=is_paused", is_paused=not on)

    def runs(self, state: str) -> list[str]:
        """The runs of the pipeline that are in this state, as paths."""
        found = self.call("GET", f"{RUNS}?state={state}")["dag_runs"]
        return [f"{RUNS}/{run['dag_run_id']}" for run in found]

    def merge_of_users(self) -> dict[str, Any]:
        """The task of the first run."""
        return dict(self.call("GET", f"{RUNS}/~/taskInstances?task_id=merge.users&order_by=id")["task_instances"][0])

    def has_dags(self) -> bool:
        return self.call("GET", "dags")["total_entries"] == 3


@pytest.fixture(scope="module")
def api(lake: Settings) -> Iterator[Api]:
    api = Api(airflow.start(lake))
    wait_until(api.has_dags)
    yield api
    airflow.stop(lake)
    assert airflow.running(lake) is None
    assert drivers(lake) == []


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.5)


def drivers(lake: Settings) -> list[psutil.Process]:
    """The JVMs and Pythons of steps that run on this lake."""
    found = []
    for process in psutil.process_iter(["cmdline", "environ"]):
        ours = (process.info["environ"] or {}).get("LAKEHOUSE_HOME") == str(lake.home)
        if ours and any(part.endswith("jobs/__main__.py") for part in process.info["cmdline"] or ()):
            found.append(process)
    return found


def send_first(endpoint: Endpoint, lake: Settings) -> None:
    produce([(topic, MESSY.first(topic.name)) for topic in TOPICS], endpoint, lake)


def test_the_dag_by_itself(lake: Settings, endpoint: Endpoint, oracle: Oracle) -> None:
    send_first(endpoint, lake)
    for arguments in (["db", "migrate"], ["dags", "test", "pipeline"]):
        subprocess.run([sys.executable, "-m", "airflow", *arguments], check=True)
    assert tables(lake) == expected(oracle.run(messages(lake)))
    assert oracle.waiting


def test_a_scheduled_run_in_which_a_step_finds_its_table_taken_and_is_tried_again(
    api: Api, lake: Settings, endpoint: Endpoint, oracle: Oracle
) -> None:
    before = set(messages(lake))
    produce([(topic, MESSY.late(topic.name)) for topic in TOPICS], endpoint, lake)
    with write_lease(lake, ["silver.users"]):
        api.switch("pipeline", on=True)
        wait_until(lambda: bool(api.runs("running")))
        [run] = api.runs("running")
        wait_until(lambda: api.merge_of_users()["state"] == "up_for_retry")
    wait_until(lambda: api.call("GET", run)["state"] in ("success", "failed"))
    assert api.call("GET", run)["state"] == "success"
    assert api.call("GET", f"{run}/taskInstances/merge.users")["try_number"] == 2
    log = json.dumps(api.call("GET", f"{run}/taskInstances/merge.users/logs/1"))
    assert f"silver.users is being written by pid {os.getpid()} " in log
    new = [message for message in messages(lake) if message not in before]
    assert tables(lake) == expected(oracle.run(new))


def test_events_of_assets_say_what_their_tables_hold(api: Api, lake: Settings) -> None:
    events = api.call("GET", "assets/events?source_dag_id=pipeline&order_by=-timestamp&limit=100")["asset_events"]
    told = {event["name"]: event["extra"] for event in reversed(events)}
    held = {status.name: status for status in table_statuses(lake)}
    for name, extra in told.items():
        assert (extra["rows"], extra["version"]) == (held[name].rows, held[name].version)
    assert told["gold.enriched_orders"]["lag"] == 0
    assert len(told) == 6


def test_a_backfill_of_three_days_brings_back_what_gold_has_lost(api: Api, lake: Settings) -> None:
    api.switch("pipeline", on=False)
    wait_until(lambda: drivers(lake) == [])
    gold = lake.table_path("gold.enriched_orders")
    held = DeltaTable(gold).count()
    assert DeltaTable(gold).delete("order_date = '2026-01-02'")["num_deleted_rows"] > 0
    api.switch("reprocess_orders", on=True)
    days = {"from_date": "2026-01-01T00:00:00Z", "to_date": "2026-01-03T00:00:00Z", "max_active_runs": 3}
    api.call("POST", "backfills", dag_id="reprocess_orders", **days)
    runs = "dags/reprocess_orders/dagRuns?run_type=backfill"
    wait_until(lambda: api.call("GET", f"{runs}&state=success")["total_entries"] == 3)
    assert DeltaTable(gold).count() == held


def test_a_run_that_is_given_up_leaves_no_driver(api: Api, lake: Settings) -> None:
    api.switch("pipeline", on=True)
    api.call("POST", RUNS, logical_date=None)
    wait_until(lambda: len(drivers(lake)) > 0)
    api.switch("pipeline", on=False)
    for run in api.runs("running"):
        api.call("PATCH", run, state="failed")
    wait_until(lambda: drivers(lake) == [])
    assert api.runs("running") == []
