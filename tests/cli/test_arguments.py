from dataclasses import replace

import pytest

from pulsar_lakehouse.cli import arguments
from pulsar_lakehouse.cli.arguments import right_key
from pulsar_lakehouse.domains.shop.declarations.items import ITEMS
from pulsar_lakehouse.domains.shop.declarations.users import USERS
from pulsar_lakehouse.errors import NOTHING_NEW
from pulsar_lakehouse.jobs import steps as steps_of_jobs
from pulsar_lakehouse.jobs.new_data import Kind, Reason
from pulsar_lakehouse.silver.entity import Entity
from tests.cli.outcome import Command

STEPS = ("land", "merge", "enrich", "reconcile", "validate", "refresh", "publish")
KINDS = replace(ITEMS, key=("id", "category"))


@pytest.mark.parametrize(
    ("entity", "key", "right"),
    [
        (USERS, "7", None),
        (USERS, "ada", "a BIGINT, such as users:123"),
        (replace(USERS, key="email_address"), "ada", None),
        (KINDS, '[7,"tools"]', None),
        (KINDS, "[7]", 'a JSON array of id, category, such as [7,"EUR"]'),
        (KINDS, "7", 'a JSON array of id, category, such as [7,"EUR"]'),
    ],
)
def test_a_key_is_what_a_message_key_is(entity: Entity, key: str, right: str | None) -> None:
    assert right_key(entity, key) == right


@pytest.mark.parametrize("step", STEPS)
def test_a_step_ends_at_once_if_it_is_told_to_and_nothing_is_new(
    lakehouse: Command, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """As Airflow runs it. Without that, it does its work: here, it needs a broker or tables."""
    monkeypatch.setattr(arguments, "reasons", lambda settings, steps: iter(()))
    monkeypatch.setattr(steps_of_jobs, "start_spark", lambda *_, **__: pytest.fail("Spark has started"))
    done = lakehouse(step, LAKEHOUSE_RUN__ONLY_NEW="true")
    assert (done.code, done.err) == (NOTHING_NEW, f"Nothing new to {step}\n")


def test_a_step_says_what_is_new(lakehouse: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    reason = Reason(Kind.NEW_MESSAGES, "orders: 2 entries have not landed", 2)
    monkeypatch.setattr(arguments, "reasons", lambda settings, steps: iter([reason] if "land" in steps else ()))
    done = lakehouse("land", LAKEHOUSE_RUN__ONLY_NEW="true", LAKEHOUSE_RUN__BROKER_TIMEOUT="1")
    assert done.err.splitlines()[0] == "New messages: orders: 2 entries have not landed"
    assert (done.code, done.line.startswith("lakehouse: no broker is running")) == (1, True)
