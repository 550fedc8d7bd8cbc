from contextlib import nullcontext
from datetime import UTC, datetime, timedelta
from pathlib import Path
from traceback import format_exception
from types import SimpleNamespace
from typing import Any, cast

import pytest
import requests
from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.sdk import DAG, Context
from airflow.sdk.exceptions import AirflowException, AirflowFailException, AirflowSkipException

from pulsar_lakehouse.dags.operators.notes import KEY
from pulsar_lakehouse.dags.operators.tasks import CONNECTION, Step, alert, alert_of_timeout, only_for_param
from pulsar_lakehouse.errors import LakehouseError, QualityError

FAILED = "Cannot execute: spark-submit. Error code is: {}.\nLast spark-submit output:\nlakehouse: why"


def context_of(**given: Any) -> Context:
    """The part of a task's context that a test needs."""
    return cast(Context, given)


@pytest.mark.parametrize(
    ("yields", "code", "expected"),
    [
        (True, 75, AirflowSkipException),
        (False, 75, AirflowException),
        (True, 1, AirflowException),
        (True, 78, AirflowFailException),
        (False, QualityError.exit_code, AirflowFailException),
    ],
)
def test_what_becomes_of_a_step_by_its_exit_code(
    monkeypatch: pytest.MonkeyPatch, yields: bool, code: int, expected: type[Exception]
) -> None:
    def fail(*_: object) -> None:
        raise AirflowException(FAILED.format(code))

    monkeypatch.setattr(SparkSubmitOperator, "execute", fail)
    step = Step(task_id="step", command=["purge"], yields=yields)
    with pytest.raises(expected) as error:
        step._submit({})
    assert type(error.value) is expected


def test_a_task_is_skipped_if_another_table_was_asked_for() -> None:
    hook = only_for_param("table", "all", "gold.orders")
    for table in ("all", "gold.orders"):
        hook({"params": {"table": table}})
    with pytest.raises(AirflowSkipException):
        hook({"params": {"table": "gold.returns"}})


@pytest.mark.parametrize("code", [0, 1])
def test_what_a_command_notes_is_kept_for_the_run_whether_it_fails_or_not(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, code: int
) -> None:
    kept: dict[str, str] = {}

    def command(step: Step, _: object) -> None:
        assert step.env_vars is not None
        Path(step.env_vars["LAKEHOUSE_RUN__NOTE_FILE"]).write_text("orders: 2 landed = 2 enriched\n")
        if code:
            raise AirflowException(FAILED.format(code))

    monkeypatch.setenv("LAKEHOUSE_HOME", str(tmp_path))
    monkeypatch.setenv(f"AIRFLOW_CONN_{CONNECTION.upper()}", "")  # the step sets it in this process
    monkeypatch.setattr(SparkSubmitOperator, "execute", command)
    named = {"dag_id": "pipeline", "task_id": "reconcile", "try_number": 1, "map_index": -1}
    task = SimpleNamespace(xcom_push=lambda *, key, value: kept.update({key: value}), **named)
    run = SimpleNamespace(logical_date=datetime(2026, 1, 31, tzinfo=UTC), clear_number=0)
    with pytest.raises(AirflowException) if code else nullcontext():
        Step(task_id="reconcile", command=["reconcile"]).execute(context_of(ti=task, dag_run=run))
    assert kept == {KEY: "orders: 2 landed = 2 enriched"}


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
    context = context_of(ti=task, exception=AirflowException(FAILED.format(1)))
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
