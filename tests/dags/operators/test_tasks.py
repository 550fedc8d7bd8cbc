import json
import sys
import threading
from collections.abc import Callable
from contextlib import nullcontext
from datetime import UTC, datetime, timedelta
from pathlib import Path
from traceback import format_exception
from types import SimpleNamespace
from typing import Any, cast

import pytest
import requests
from airflow.sdk import DAG, Context
from airflow.sdk.exceptions import AirflowSkipException
from structlog.testing import capture_logs

from pulsar_lakehouse.dags.operators import tasks
from pulsar_lakehouse.dags.operators.notes import OF_RUN, OF_TASK
from pulsar_lakehouse.dags.operators.tasks import (
    Failed,
    FailedForGood,
    Step,
    alert,
    alert_of_timeout,
    asset,
    only_for_param,
)
from pulsar_lakehouse.errors import LakehouseError, QualityError


def context_of(**given: Any) -> Context:
    """The part of a task's context that a test needs."""
    return cast(Context, given)


def task_context(kept: dict[str, str] | None = None, *, run_type: str = "scheduled", **of_run: Any) -> Context:
    """The context of a task in a run, whose XComs go to `kept`."""
    pushed = {} if kept is None else kept
    named = {"dag_id": "pipeline", "task_id": "step", "try_number": of_run.pop("try_number", 1), "map_index": -1}
    task = SimpleNamespace(xcom_push=lambda *, key, value: pushed.update({key: value}), **named)
    run = SimpleNamespace(
        run_type=run_type, logical_date=datetime(2026, 1, 31, tzinfo=UTC), **{"clear_number": 0, **of_run}
    )
    events = {asset("silver.users"): SimpleNamespace(extra={})}
    return context_of(ti=task, dag_run=run, outlet_events=events)


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[str], None]:
    """Makes steps run some lines of Python instead of `lakehouse`; `outcome` is the file for what they did."""
    monkeypatch.setenv("LAKEHOUSE_HOME", str(tmp_path))

    def replace(lines: str) -> None:
        begin = "import os, sys; outcome = open(os.environ['LAKEHOUSE_RUN__OUTCOME_FILE'], 'a')"
        monkeypatch.setattr(tasks, "COMMAND", (sys.executable, "-c", f"{begin}\n{lines}\n"))

    return replace


@pytest.mark.parametrize(
    ("yields", "code", "expected"),
    [
        (True, 75, AirflowSkipException),
        (False, 75, Failed),
        (False, 99, AirflowSkipException),
        (True, 1, Failed),
        (True, 78, FailedForGood),
        (False, QualityError.exit_code, FailedForGood),
    ],
)
def test_what_becomes_of_a_step_by_its_exit_code(
    command: Callable[[str], None], yields: bool, code: int, expected: type[BaseException]
) -> None:
    command(f"sys.exit({code})")
    with pytest.raises(expected) as error:
        Step(task_id="step", command=["purge"], yields=yields).execute(task_context())
    assert type(error.value) is expected


def test_the_cause_is_the_one_error_in_the_log(command: Callable[[str], None]) -> None:
    command("print('Landing', flush=True); print('lakehouse: no broker is running', file=sys.stderr); sys.exit(1)")
    step = Step(task_id="step", command=["land"])
    with capture_logs() as told, pytest.raises(Failed, match="no broker is running"):
        step.execute(task_context())
    errors = [each for each in told if each["log_level"] == "error"]
    assert errors == [{"log_level": "error", "event": "lakehouse: no broker is running"}]


def test_a_command_that_is_killed_is_a_failure_that_says_so(command: Callable[[str], None]) -> None:
    command("os.kill(os.getpid(), 9)")
    with pytest.raises(Failed, match="was ended by SIGKILL"):
        Step(task_id="step", command=["land"]).execute(task_context())


def test_a_command_ends_with_its_task(command: Callable[[str], None]) -> None:
    command("import time; print('begun', flush=True); time.sleep(600)")
    step = Step(task_id="step", command=["land"])
    threading.Timer(1, step.on_kill).start()
    with pytest.raises(Failed, match="was ended by SIGTERM"):
        step.execute(task_context())


@pytest.mark.parametrize(
    ("context", "only_new"),
    [
        (task_context(), "True"),
        (task_context(run_type="asset_triggered"), "True"),
        (task_context(run_type="manual"), "False"),
        (task_context(clear_number=1), "False"),
        (task_context(try_number=2), "False"),
    ],
)
def test_only_what_nobody_asked_for_is_left_out_if_nothing_is_new(
    command: Callable[[str], None], context: Context, only_new: str
) -> None:
    command("sys.exit(99 if os.environ['LAKEHOUSE_RUN__ONLY_NEW'] == 'True' else 0)")
    with pytest.raises(AirflowSkipException) if only_new == "True" else nullcontext():
        Step(task_id="step", command=["merge"]).execute(context)


def test_a_task_is_skipped_if_another_table_was_asked_for() -> None:
    hook = only_for_param("table", "all", "gold.orders")
    for table in ("all", "gold.orders"):
        hook({"params": {"table": table}})
    with pytest.raises(AirflowSkipException):
        hook({"params": {"table": "gold.returns"}})


@pytest.mark.parametrize("code", [0, 1])
def test_what_a_command_did_is_kept_for_notes_and_assets_whether_it_fails_or_not(
    command: Callable[[str], None], code: int
) -> None:
    held = {"table": "silver.users", "rows": 2000, "version": 3, "lag": 0}
    lines = [json.dumps(each) for each in ({"note": "merge: 2,000 users"}, held, held | {"table": "silver.items"})]
    command(f"print(*{lines!r}, sep='\\n', file=outcome, flush=True); sys.exit({code})")
    kept: dict[str, str] = {}
    context = task_context(kept)
    with pytest.raises(Failed) if code else nullcontext():
        Step(task_id="merge", command=["merge"], writes=["silver.users"]).execute(context)
    assert kept == {
        OF_RUN: "merge: 2,000 users",
        OF_TASK: "merge: 2,000 users\nsilver.users: 2,000 rows, up to date",
    }
    assert context["outlet_events"][asset("silver.users")].extra == {"rows": 2000, "version": 3, "lag": 0}


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The alerts that are posted, each with its URL."""
    posts: list[Any] = []

    def post(url: str, **given: Any) -> Any:
        posts.append((url, given["json"]["text"]))
        return SimpleNamespace(raise_for_status=lambda: None)

    monkeypatch.setattr(requests, "post", post)
    return posts


def test_a_failure_is_told_in_one_line_with_the_way_to_the_log(
    told: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    task = SimpleNamespace(dag_id="pipeline", task_id="reconcile", run_id="run", log_url="http://here/log")
    context = context_of(ti=task, exception=Failed("lakehouse: why"))
    alert(context)
    assert told == []
    monkeypatch.setenv("LAKEHOUSE_AIRFLOW__ALERT_URL", "http://there")
    alert(context)
    assert told == [("http://there", "pipeline.reconcile failed in run: lakehouse: why\nhttp://here/log")]


def test_a_run_that_took_too_long_is_told(told: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAKEHOUSE_AIRFLOW__ALERT_URL", "http://there")
    dag = DAG("pipeline", dagrun_timeout=timedelta(hours=2))
    for reason in ("task_failure", "timed_out"):
        alert_of_timeout(context_of(dag=dag, run_id="run", reason=reason))
    assert told == [("http://there", "pipeline timed out in run: it took more than 2:00:00")]


def test_an_alert_that_fails_does_not_say_the_address(monkeypatch: pytest.MonkeyPatch) -> None:
    def post(url: str, **_: Any) -> Any:
        raise requests.ConnectionError(f"no way to {url}")

    monkeypatch.setattr(requests, "post", post)
    monkeypatch.setenv("LAKEHOUSE_AIRFLOW__ALERT_URL", "http://there/secret")
    task = SimpleNamespace(dag_id="pipeline", task_id="reconcile", run_id="run", log_url="http://here/log")
    with pytest.raises(LakehouseError) as error:
        alert(context_of(ti=task))
    assert "".join(format_exception(error.value)).splitlines()[-1].endswith("airflow.alert_url: ConnectionError")
    assert "secret" not in "".join(format_exception(error.value))
