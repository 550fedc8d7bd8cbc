"""The first task of a run: it lets the run end if nothing is new, and fails by itself if there is no broker."""

from types import SimpleNamespace
from typing import Any

import pytest

from pulsar_lakehouse.dags.operators import news
from pulsar_lakehouse.dags.operators.notes import OF_TASK
from pulsar_lakehouse.dags.operators.tasks import Failed, FailedForGood
from pulsar_lakehouse.errors import BrokerError, RefusedError
from pulsar_lakehouse.jobs import new_data
from pulsar_lakehouse.jobs.new_data import Kind, Reason


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """A scheduled run, and what is new for it."""
    run = SimpleNamespace(run_type="scheduled", clear_number=0, reasons=[], said={})
    task = SimpleNamespace(try_number=1, xcom_push=lambda *, key, value: run.said.update({key: value}))
    monkeypatch.setattr(news, "get_current_context", lambda: {"dag_run": run, "ti": task})
    monkeypatch.setattr(new_data, "reasons", lambda _: iter(run.reasons))
    return run


def test_a_run_goes_on_if_something_is_new(run: SimpleNamespace) -> None:
    assert not news.has_news()
    run.reasons = [Reason(Kind.NEW_MESSAGES, "orders: 2 entries have not landed", 2)]
    assert news.has_news()
    assert run.said == {OF_TASK: "New messages: orders: 2 entries have not landed"}


@pytest.mark.parametrize("change", [{"run_type": "manual"}, {"clear_number": 1}])
def test_a_run_that_somebody_asked_for_does_all(run: SimpleNamespace, change: dict[str, Any]) -> None:
    vars(run).update(change)
    assert news.has_news()
    assert run.said == {OF_TASK: "Requested: somebody has asked for this run"}


@pytest.mark.parametrize(("error", "kind"), [(BrokerError("away"), Failed), (RefusedError("away"), FailedForGood)])
@pytest.mark.parametrize("run_type", ["scheduled", "manual"])
def test_a_broker_that_is_away_is_a_failure_of_one_line(
    run: SimpleNamespace,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    error: Exception,
    kind: type[Failed],
    run_type: str,
) -> None:
    def fail(_: object) -> Any:
        raise error

    run.run_type = run_type
    monkeypatch.setattr(new_data, "reasons", fail)
    with pytest.raises(kind, match="lakehouse: away") as failed:
        news.has_news()
    assert type(failed.value) is kind
    assert [(each.levelname, each.getMessage()) for each in caplog.records] == [("ERROR", "lakehouse: away")]
