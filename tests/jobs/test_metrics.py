"""Metrics are the numbers of the status. Alerts and the dashboard name only those that exist."""

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from pulsar_lakehouse.jobs import metrics as module
from pulsar_lakehouse.jobs.metrics import FIGURES, Metrics, Pulse, application
from pulsar_lakehouse.jobs.pipeline_status import FailedChecks, Malformed, Status, TopicState, Waiting
from pulsar_lakehouse.pulsar.backlog import TopicStatus
from pulsar_lakehouse.records import StepRecord
from pulsar_lakehouse.settings import Settings

ROOT = Path(__file__).parent.parent.parent
MONITORING = ROOT / "monitoring"
RULES = [rule for group in yaml.safe_load((MONITORING / "alerts.yml").read_text())["groups"] for rule in group["rules"]]
PANELS = json.loads((MONITORING / "grafana" / "dashboards" / "lakehouse.json").read_text())["panels"]
QUERIES = [target["expr"] for panel in PANELS for target in panel["targets"]] + [rule["expr"] for rule in RULES]
FOUND = Status(
    broker="no broker is running",
    topics=[
        TopicState(
            name="orders",
            status=TopicStatus(name="orders", messages=9, backlog=2, backlog_bytes=0, lag_seconds=7.5),
            problem="",
        )
    ],
    waiting=[Waiting(topic="orders", entity="users", reason="missing", rows=3, expired=1, oldest_seconds=60)],
    malformed=[Malformed(topic="orders", rows=4, new=3, oldest_seconds=7_200)],
    held={("orders", "duplicates"): 5},
    landed={"orders": 30},
    unreconciled={"orders": 3_600},
    checks=[FailedChecks(table="gold.orders", severity="warning", rules=["grew_as_usual", "has_not_shrunk"])],
    steps=[StepRecord(step="land orders", rows=12, retries=1)],
)


@pytest.fixture
def metrics(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> Metrics:
    monkeypatch.setattr(module, "status_of", lambda _: FOUND)
    return Metrics(settings)


def get(metrics: Metrics, path: str, pulse: Pulse | None = None) -> tuple[str, str]:
    """The status line and the body of an answer."""
    said: list[str] = []
    body = application(metrics, pulse)({"PATH_INFO": path}, lambda code, _: said.append(code))
    return said[0], b"".join(body).decode()


def test_metrics_are_the_numbers_of_the_status(metrics: Metrics) -> None:
    code, text = get(metrics, "/metrics")
    samples = {
        (sample.name.removeprefix("lakehouse_"), *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }
    assert code == "200 OK"
    assert samples == {
        ("broker_up",): 0,
        ("tables_up",): 1,
        ("collect_seconds",): 0,
        ("topic_messages_total", "orders"): 9,
        ("topic_backlog_entries", "orders"): 2,
        ("topic_lag_seconds", "orders"): 7.5,
        ("topic_blocked", "orders"): 0,
        ("waiting_facts", "users", "missing", "orders"): 3,
        ("waiting_expired_facts", "users", "missing", "orders"): 1,
        ("waiting_oldest_seconds", "users", "missing", "orders"): 60,
        ("malformed_messages", "orders"): 4,
        ("malformed_new_messages", "orders"): 3,
        ("malformed_oldest_seconds", "orders"): 7_200,
        ("duplicate_facts", "orders"): 5,
        ("landed_messages", "orders"): 30,
        ("held_back_messages", "orders"): 12,
        ("step_rows_total", "land orders"): 12,
        ("step_batches_total", "land orders"): 0,
        ("step_seconds_total", "land orders"): 0,
        ("step_retries_total", "land orders"): 1,
        ("step_failures_total", "land orders"): 0,
        ("step_failed", "land orders"): 0,
        ("step_batch_timestamp_seconds", "land orders"): 0,
        ("unreconciled_seconds", "orders"): 3_600,
        ("failed_rules", "warning", "gold.orders"): 2,
    }


def test_ready_is_who_can_ask_the_broker_and_read_the_tables(
    metrics: Metrics, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert get(metrics, "/-/ready") == ("503 Service Unavailable", "no broker is running\n")
    monkeypatch.setattr(module, "status_of", lambda _: Status())
    assert get(Metrics(settings), "/-/ready") == ("200 OK", "ok\n")


def test_healthy_is_a_pipeline_that_shows_life(metrics: Metrics, monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1_000.0
    monkeypatch.setattr("pulsar_lakehouse.jobs.metrics.time.monotonic", lambda: now)
    pulse = Pulse()
    now += 500
    pulse.beat()
    now += 500
    assert get(metrics, "/-/healthy") == get(metrics, "/-/healthy", pulse) == ("200 OK", "ok\n")
    now += 101
    assert get(metrics, "/-/healthy") == ("200 OK", "ok\n")
    code, why = get(metrics, "/-/healthy", pulse)
    assert (code, why) == ("503 Service Unavailable", "the pipeline has not moved for 601 s\n")


def test_no_sample_says_what_the_broker_does_not(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    status = TopicStatus(name="orders", messages=9, backlog=2, backlog_bytes=0, lag_seconds=None)
    topics = [TopicState(name="orders", status=status, problem="")]
    monkeypatch.setattr(module, "status_of", lambda _: Status(topics=topics))
    text = Metrics(settings).text().decode()
    assert 'lakehouse_topic_backlog_entries{topic="orders"} 2.0' in text
    assert 'lakehouse_topic_lag_seconds{topic="orders"}' not in text


def test_another_page_is_not_found(metrics: Metrics) -> None:
    assert get(metrics, "/") == ("404 Not Found", "there are /metrics, /-/healthy and /-/ready\n")


@pytest.mark.parametrize("query", QUERIES)
def test_a_query_names_metrics_and_labels_that_exist(query: str) -> None:
    known = {figure.full_name: figure.labels for figure in FIGURES}
    named = set(re.findall(r"lakehouse_\w+", query))
    assert named
    assert named <= set(known)
    labels = {label for name in named for label in known[name]}
    grouped = {label.strip() for found in re.findall(r"by \(([^)]*)\)", query) for label in found.split(",")}
    assert grouped | set(re.findall(r"[{,](\w+)=", query)) <= labels | {"job"}


@pytest.mark.parametrize("query", QUERIES)
def test_a_query_does_not_add_up_pipelines(query: str) -> None:
    """Prometheus gives the numbers of each pipeline its own `job`."""
    assert not re.search(r"\b(sum|min|max|count|avg)\b", query) or re.search(r"by \(job\b|job=\"\$job\"", query)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: str(rule["alert"]))
def test_an_alert_says_what_to_do_and_where_to_read_more(rule: dict[str, Any]) -> None:
    page, _, anchor = rule["annotations"]["page"].partition("#")
    headings = re.findall(r"^#+ (.+)$", (ROOT / "docs" / page).read_text(), re.MULTILINE)
    assert anchor in [re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings]
    summary = rule["annotations"]["summary"]
    labels = {label for figure in FIGURES if figure.full_name in rule["expr"] for label in figure.labels}
    assert set(re.findall(r"\$labels\.(\w+)", summary)) <= labels


@pytest.mark.parametrize("alert", [rule["alert"] for rule in RULES])
def test_an_alert_is_seen_to_fire(alert: str) -> None:
    tests = yaml.safe_load((ROOT / "tests" / "monitoring" / "alerts.test.yml").read_text())["tests"]
    seen = [each for test in tests for each in test.get("alert_rule_test", ()) if each.get("exp_alerts")]
    assert alert in [each["alertname"] for each in seen]


@pytest.mark.skipif(shutil.which("promtool") is None, reason="needs promtool, which comes with Prometheus")
def test_alerts_fire_when_they_must() -> None:
    done = subprocess.run(
        ["promtool", "test", "rules", ROOT / "tests" / "monitoring" / "alerts.test.yml"], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
