import asyncio
from pathlib import Path
from typing import Any

import pytest

from pulsar_lakehouse.dags.operators.backlog import BacklogTrigger
from pulsar_lakehouse.domains.shop.workload import Workload
from pulsar_lakehouse.pulsar.endpoint import Endpoint, call_admin
from pulsar_lakehouse.pulsar.produce import produce
from pulsar_lakehouse.settings import Settings
from tests.lake import environment, own_topics
from tests.shop import TOPICS


def events(trigger: BacklogTrigger, count: int) -> list[Any]:
    """The payloads of the first `count` events."""

    async def collect() -> list[Any]:
        found: list[Any] = []
        async for event in trigger.run():
            found.append(event.payload)
            if len(found) == count:
                break
        return found

    return asyncio.run(asyncio.wait_for(collect(), timeout=60))


def test_messages_that_wait_are_an_event(
    settings: Settings, endpoint: Endpoint, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = own_topics(settings, endpoint, tmp_path)
    for name, value in environment(project).items():
        monkeypatch.setenv(name, value)
    trigger = BacklogTrigger()
    assert trigger.waiting() == {}
    users = f"persistent/{project.pulsar.namespace}/users"
    call_admin("DELETE", f"{users}/partitions?force=true", endpoint, project)
    assert trigger.waiting() == {}
    call_admin("PUT", users, endpoint, project)  # without partitions, as an early producer creates it
    workload = Workload(users=5, orders=20)
    produce([(topic, workload.first(topic.name)) for topic in TOPICS if topic.name != "items"], endpoint, project)
    [waiting] = events(trigger, 1)
    assert set(waiting) == {"users", "orders"}
    assert all(count > 0 for count in waiting.values())


def test_a_backlog_is_told_once_until_it_was_empty(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = iter([{}, {"orders": 2}, {"orders": 3}, {}, {"orders": 1}])
    trigger = BacklogTrigger(poll_seconds=0)
    monkeypatch.setattr(trigger, "waiting", lambda: next(seen))
    assert events(trigger, 2) == [{"orders": 2}, {"orders": 1}]


def test_without_a_broker_nothing_waits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAKEHOUSE_HOME", str(tmp_path))
    assert BacklogTrigger().waiting() == {}


def test_airflow_can_recreate_the_trigger() -> None:
    assert BacklogTrigger(poll_seconds=3).serialize() == (
        "pulsar_lakehouse.dags.operators.backlog.BacklogTrigger",
        {"poll_seconds": 3},
    )
