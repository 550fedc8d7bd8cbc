"""What a look at a pipeline finds, and how far gold is behind its topics."""

import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from obstore.exceptions import GenericError

from pulsar_lakehouse.domains.shop.declarations.orders import ORDERS
from pulsar_lakehouse.errors import BrokerError, ConfigurationError, UnreachableError
from pulsar_lakehouse.inspection.table_status import TableStatus
from pulsar_lakehouse.jobs.pipeline_status import (
    FailedChecks,
    Status,
    TopicState,
    failed_checks,
    freshness,
    malformed_messages,
    status_of,
    unreconciled,
    waiting_facts,
)
from pulsar_lakehouse.pulsar.backlog import TopicStatus
from pulsar_lakehouse.pulsar.endpoint import Endpoint
from pulsar_lakehouse.reconciliation import Reconciliation
from pulsar_lakehouse.records import ReconciliationRecord, StepRecord, keep_reconciliations, keep_step
from pulsar_lakehouse.settings import Settings
from tests.lake import own_home
from tests.shop import SHOP


def topic(name: str, *, lag: float | None = 0.0, problem: str = "") -> TopicState:
    status = TopicStatus(name=name, messages=9, backlog=int(lag != 0), backlog_bytes=0, lag_seconds=lag)
    return TopicState(name=name, status=status, problem=problem)


def table(name: str, *, rows: int = 1, lag: float | None = 0.0) -> TableStatus:
    """A table that is two days old."""
    now = datetime.now(UTC)
    return TableStatus(
        name=name,
        rows=rows,
        version=3,
        size=9,
        files=1,
        deleted=None,
        made_at=now - timedelta(days=2),
        ran_at=now,
        lag=int(bool(lag)),
        lag_seconds=lag,
    )


def test_waiting_facts_are_counted_by_what_they_wait_for_first(tmp_path: Path) -> None:
    users, items = ({"entity": entity, "reason": "missing"} for entity in ("users", "items"))
    now = datetime.now(UTC)
    rows = {
        "reason": ["user missing", "user missing, item missing", "item missing"],
        "missing": [[users], [users, items], [items]],
        "waiting_since": [now - timedelta(days=31), now, now],
    }
    write_deltalake(str(tmp_path), pa.table(rows))
    found = waiting_facts(ORDERS, DeltaTable(str(tmp_path)))
    assert sorted((each.entity, each.reason, each.rows, each.expired) for each in found) == [
        ("items", "missing", 1, 0),
        ("users", "missing", 2, 1),
    ]


def test_malformed_messages_are_counted_by_topic_and_whether_they_are_new(tmp_path: Path) -> None:
    now = datetime.now(UTC)
    came = {"users": [timedelta(days=2), timedelta(days=1)], "orders": [timedelta(hours=3), timedelta(minutes=5)]}
    for topic, ages in came.items():
        rows = {"topic": [topic] * len(ages), "quarantined_at": [now - age for age in ages]}
        write_deltalake(str(tmp_path), pa.table(rows), partition_by=["topic"], mode="append")
    found = malformed_messages(DeltaTable(str(tmp_path)))
    assert {topic: (each.rows, each.new, round(each.oldest_seconds / 3_600)) for topic, each in found.items()} == {
        "users": (2, 0, 48),
        "orders": (2, 1, 3),
    }


def test_gold_is_as_late_as_the_latest_of_its_sources() -> None:
    names = ("bronze.items", "bronze.users", "bronze.orders", "silver.items_history")
    tables = [*(table(name, lag=None) for name in names), table("silver.users"), table("silver.items", lag=70)]
    tables += [table("gold.enriched_orders", lag=5), table("gold.revenue_so_far", lag=90)]
    topics = [topic("items"), topic("users", lag=50), topic("orders")]
    assert freshness(SHOP, topics, tables) == {"gold.enriched_orders": 70}


def test_how_late_gold_is_is_not_known_without_the_broker() -> None:
    unknown = [topic("items"), topic("users"), topic("orders", lag=None)]
    assert freshness(SHOP, unknown, [table("bronze.orders", lag=None), table("gold.enriched_orders")]) == {}
    assert freshness(SHOP, [], [table("bronze.orders", lag=None), table("gold.enriched_orders")]) == {}


def test_a_topic_is_unreconciled_since_its_last_reconciliation_or_since_it_first_landed() -> None:
    tables = [table("bronze.items", rows=0), table("bronze.users"), table("bronze.orders")]
    done = ReconciliationRecord(topic="users", holds=True, difference=0, problems=(), at=time.time() - 60)
    found = unreconciled(SHOP, tables, [done])
    assert {topic: round(age) for topic, age in found.items()} == {"users": 60, "orders": 2 * 86_400}


def test_the_rules_that_did_not_pass_in_the_last_validation(tmp_path: Path) -> None:
    now = datetime.now(UTC)
    rows = [
        ("silver.users", "key_is_unique", "critical", "failed", now - timedelta(hours=1)),
        ("silver.users", "key_is_unique", "critical", "passed", now),
        ("silver.users", "name_is_there", "warning", "failed", now),
        ("silver.users", "grew_as_usual", "warning", "error", now),
        ("silver.items", "key_is_unique", "critical", "failed", now - timedelta(days=3)),
    ]
    names = ("table_name", "rule", "severity", "outcome", "validated_at")
    write_deltalake(str(tmp_path), pa.Table.from_pylist([dict(zip(names, row, strict=True)) for row in rows]))
    assert failed_checks(DeltaTable(str(tmp_path))) == [
        FailedChecks(table="silver.users", severity="critical", rules=["grew_as_usual"]),
        FailedChecks(table="silver.users", severity="warning", rules=["name_is_there"]),
    ]


BROKER = Endpoint(service_url="pulsar://broker:6650", admin_url="http://broker:8080")


def asked(settings: Settings, monkeypatch: pytest.MonkeyPatch, answer: Callable[[str], TopicStatus]) -> Status:
    """The status, with a broker that answers so for each topic."""
    monkeypatch.setattr("pulsar_lakehouse.jobs.pipeline_status.endpoint", lambda _: BROKER)
    monkeypatch.setattr("pulsar_lakehouse.jobs.pipeline_status.topic_status", lambda topic, *_: answer(topic.name))
    monkeypatch.setattr("pulsar_lakehouse.jobs.pipeline_status.refusal", lambda *_: None)
    return status_of(settings)


def test_a_topic_that_is_not_there_is_no_broker_that_is_down(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def answer(name: str) -> TopicStatus:
        if name == "items":
            raise BrokerError("items: no such topic")
        return TopicStatus(name=name, messages=9, backlog=0, backlog_bytes=0, lag_seconds=0.0)

    found = asked(own_home(settings, tmp_path), monkeypatch, answer)
    said = {each.name: (each.status is None, each.problem) for each in found.topics}
    missing = "items: no such topic: `lakehouse topics create` makes the declared ones"
    assert (found.broker, said) == ("", {"users": (False, ""), "items": (True, missing), "orders": (False, "")})


def test_a_broker_that_does_not_answer_is_asked_once(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names: list[str] = []

    def answer(name: str) -> TopicStatus:
        names.append(name)
        raise UnreachableError("http://broker:8080: no answer from the broker")

    found = asked(own_home(settings, tmp_path), monkeypatch, answer)
    assert (found.broker, len(names)) == ("http://broker:8080: no answer from the broker", 1)


@pytest.mark.parametrize("part", ["endpoint", "table_statuses"])
@pytest.mark.parametrize("error", [GenericError("it is down"), ConfigurationError("it is down"), OSError("it is down")])
def test_whatever_fails_the_status_says_so(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, part: str, error: Exception
) -> None:
    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr(f"pulsar_lakehouse.jobs.pipeline_status.{part}", fail)
    found = status_of(own_home(settings, tmp_path))
    assert (found.broker if part == "endpoint" else found.unreadable) == "it is down"


def test_a_topic_whose_checkpoint_can_not_be_read_is_blocked(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError("it is locked")

    monkeypatch.setattr("pulsar_lakehouse.jobs.pipeline_status.endpoint", lambda _: BROKER)
    numbers = TopicStatus(name="any", messages=9, backlog=0, backlog_bytes=0, lag_seconds=0.0)
    monkeypatch.setattr("pulsar_lakehouse.jobs.pipeline_status.topic_status", lambda *_: numbers)
    monkeypatch.setattr("pulsar_lakehouse.jobs.pipeline_status.refusal", refuse)
    found = status_of(own_home(settings, tmp_path))
    assert {(each.status, each.problem) for each in found.topics} == {(numbers, "it is locked")}


def test_steps_and_reconciliations_of_what_is_no_longer_declared_are_left_out(
    settings: Settings, tmp_path: Path
) -> None:
    project = own_home(settings, tmp_path)
    for step in ("land orders", "land old", "merge users"):
        keep_step(project, StepRecord(step=step))
    keep_reconciliations(
        project, [Reconciliation(topic=name, landed=0, accounted={}, problems=()) for name in ("old", "users")]
    )
    found = status_of(project)
    assert [each.step for each in found.steps] == ["land orders", "merge users"]
    assert [each.topic for each in found.reconciliations] == ["users"]
