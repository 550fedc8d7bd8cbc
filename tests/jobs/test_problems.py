"""What is wrong with a pipeline: whatever Prometheus alerts of, as far as one look can tell."""

import re
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from pulsar_lakehouse.bronze.pulsar.admin import OpenTransaction
from pulsar_lakehouse.jobs.metrics import families
from pulsar_lakehouse.jobs.pipeline_status import FailedChecks, Malformed, Status, Waiting
from pulsar_lakehouse.jobs.problems import problems, warnings
from pulsar_lakehouse.records import ReconciliationRecord, StepRecord
from tests.jobs.test_metrics import RULES
from tests.jobs.test_pipeline_status import table, topic


def reconciled(topic: str, *, holds: bool = True) -> ReconciliationRecord:
    found = () if holds else ("2 in no table",)
    return ReconciliationRecord(topic=topic, holds=holds, difference=2 * (not holds), problems=found, at=0)


def waiting(*, expired: int) -> Waiting:
    return Waiting(topic="orders", entity="users", reason="missing", rows=9, expired=expired, oldest_seconds=1)


def rules(severity: str, *names: str) -> FailedChecks:
    return FailedChecks(table="gold.orders", severity=severity, rules=names)


def test_a_pipeline_with_nothing_wrong() -> None:
    status = Status(
        topics=[topic("orders", lag=60)],
        tables=[table("silver.users", lag=600), table("bronze.users", lag=None), table("gold.by_sql", lag=9_999)],
        streams=["silver.users", "bronze.users"],
        waiting=[waiting(expired=0)],
        steps=[StepRecord(step="land orders", retries=9)],
        reconciliations=[reconciled("orders")],
        unreconciled={"orders": 3_600},
        checks=[rules("critical"), rules("warning")],
    )
    assert (list(problems(status)), list(warnings(status))) == ([], [])


def test_a_transaction_is_a_problem_once_it_is_long() -> None:
    def status(minutes: float) -> Status:
        [held] = [topic("orders", lag=9_999)]
        assert held.status
        transaction = OpenTransaction("(0,3)", datetime.now(UTC) - timedelta(minutes=minutes))
        return Status(topics=[replace(held, status=replace(held.status, transaction=transaction))])

    assert list(problems(status(0.5))) == []
    assert list(problems(status(20))) == [
        "orders: the transaction (0,3), open for 20 min, holds back what is behind it: does its producer live?"
    ]


def test_the_gravest_problem_comes_first() -> None:
    status = Status(
        broker="no broker is running",
        contracts={"orders": ["id is registered as string, but declared as long"]},
        unreadable="silver.users: torn",
        topics=[topic("items", problem="5 entries are lost"), topic("users", lag=7_300)],
        tables=[table("silver.users", lag=901), replace(table("bronze.users"), files=2_500)],
        streams=["silver.users"],
        waiting=[waiting(expired=4)],
        malformed=[Malformed(topic="items", rows=5_000, new=1_200)],
        steps=[
            StepRecord(step="land orders", retry="land orders: the broker is busy"),
            StepRecord(step="merge users", failure="merge users: the disk is full"),
        ],
        reconciliations=[reconciled("orders", holds=False)],
        unreconciled={"users": 200_000},
        checks=[rules("critical", "key_is_unique"), rules("warning", "grew_as_usual")],
    )
    assert list(problems(status)) == [
        "orders: id is registered as string, but declared as long: its messages are malformed until that is declared; "
        "then run `lakehouse quarantine retry`",
        "orders: reconciliation does not hold: 2 in no table: see `lakehouse reconcile`",
        "the tables can't be read: silver.users: torn",
        "the broker can't be asked: no broker is running",
        "items: can't land: 5 entries are lost",
        "the last run failed: merge users: the disk is full",
        "a step was tried again: land orders: the broker is busy",
        "gold.orders: 1 critical rule did not pass: see `lakehouse validate`",
        "users: messages have waited in the broker for 2 h: does the pipeline run?",
        "silver.users: has not read what came 15 min ago: does the pipeline run?",
        "orders: 4 wait for users and are no longer retried: see `lakehouse quarantine inspect`",
        "items: 1,200 messages broke the contract within an hour: see quarantine.malformed",
        "users: was not reconciled for 2 d: is `lakehouse reconcile` run each day?",
        "bronze.users: has 2,500 small files: is `lakehouse maintain` run each night?",
    ]


def test_rules_that_only_warn_are_no_problem_but_are_told() -> None:
    status = Status(checks=[rules("warning", "grew_as_usual", "has_not_shrunk")])
    assert list(problems(status)) == []
    assert list(warnings(status)) == ["gold.orders: 2 warning rules did not pass: see `lakehouse validate`"]


def test_a_topic_of_which_nothing_gets_through() -> None:
    """Users break the contract. All orders wait, and all payments have the keys of another one."""
    status = Status(
        landed={"users": 3, "orders": 9, "payments": 2_000, "items": 4},
        malformed=[Malformed(topic="users", rows=3)],
        waiting=[waiting(expired=0)],
        held={("payments", "duplicates"): 1_999, ("items", "discarded"): 4},
    )
    assert list(problems(status)) == [
        "users: of 3 messages, most are held back: 3 malformed: see `lakehouse quarantine inspect`",
        "orders: of 9 messages, most are held back: 9 waiting: see `lakehouse quarantine inspect`",
        "payments: of 2,000 messages, most are held back: 1,999 duplicate: see `lakehouse quarantine inspect`",
    ]


def test_a_failure_of_several_steps_for_one_reason_is_told_once() -> None:
    steps = [StepRecord(step=f"land {name}", failure="land orders: no subscription") for name in ("orders", "users")]
    assert list(problems(Status(steps=steps))) == ["the last run failed: land orders: no subscription"]


LIMITS: list[tuple[str, Callable[[Any], Status], object, object]] = [
    ("ReconciliationFailed", lambda holds: Status(reconciliations=[reconciled("orders", holds=holds)]), True, False),
    ("ReconciliationOld", lambda age: Status(unreconciled={"orders": age}), 86_400, 86_401),
    ("TopicBlocked", lambda why: Status(topics=[topic("orders", problem=why)]), "", "5 entries are lost"),
    ("BrokerDown", lambda why: Status(broker=why), "", "no broker is running"),
    ("TablesUnreadable", lambda why: Status(unreadable=why), "", "silver.users: torn"),
    ("StepFailed", lambda why: Status(steps=[StepRecord(step="merge users", failure=why)]), "", "the disk is full"),
    ("NotLanding", lambda age: Status(topics=[topic("orders", lag=age)]), 900, 901),
    ("GoldLate", lambda age: late_gold(age), 900, 1_801),
    ("FactsExpired", lambda count: Status(waiting=[waiting(expired=count)]), 0, 1),
    ("MalformedMessages", lambda new: Status(malformed=[Malformed(topic="orders", rows=500, new=new)]), 100, 101),
    ("MostHeldBack", lambda count: malformed_of_ten(count), 5, 6),
    ("CriticalRuleFails", lambda names: Status(checks=[rules("critical", *names)]), [], ["key_is_unique"]),
    ("ManySmallFiles", lambda count: files(count, size=10), 2_000, 2_001),
    ("ManySmallFiles", lambda size: files(3_000, size=size), 1_000_000, 999_999),
]
"""An alert, a status by the figure that the alert is about, and two of its values: a good one and a bad one."""

ONLY_OVER_TIME = {
    "MetricsAbsent": "it is about who answers Prometheus",
    "StepRetries": "it counts the retries of 30 minutes",
    "QuarantineGrows": "it compares with an hour ago, and facts that have left since can't be seen",
}


def late_gold(age: float) -> Status:
    """Gold is as late as a table on the way to it, and that is what the problem names."""
    return Status(tables=[table("silver.users", lag=age)], streams=["silver.users"], freshness={"gold.orders": age})


def malformed_of_ten(count: int) -> Status:
    return Status(landed={"orders": 10}, malformed=[Malformed(topic="orders", rows=count)])


def files(count: int, *, size: int) -> Status:
    """A table with files of a size."""
    return Status(tables=[replace(table("bronze.orders"), files=count, size=count * size)])


def fires(alert: str, status: Status) -> bool:
    """Whether an alert's condition is met. Without labels and sums, it is Python as well as PromQL."""
    [condition] = [rule["expr"] for rule in RULES if rule["alert"] == f"Lakehouse{alert}"]
    figures = {sample.name: sample.value for family in families(status) for sample in family.samples}
    return bool(eval(re.sub(r"\{.*?\}|sum by \(.*?\)", "", condition), figures))


@pytest.mark.parametrize(("alert", "status", "good", "bad"), LIMITS)
def test_what_sets_off_an_alert_is_a_problem(
    alert: str, status: Callable[[Any], Status], good: object, bad: object
) -> None:
    assert (fires(alert, status(good)), list(problems(status(good)))) == (False, [])
    assert (fires(alert, status(bad)), len(list(problems(status(bad))))) == (True, 1)


def test_each_alert_is_a_problem_or_only_shows_over_time() -> None:
    named = {alert for alert, *_ in LIMITS}
    assert sorted([*named, *ONLY_OVER_TIME]) == sorted(rule["alert"].removeprefix("Lakehouse") for rule in RULES)
