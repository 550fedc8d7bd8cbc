"""What starts a run of the pipeline, and what lets one end at once."""

import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace

import pytest

from pulsar_lakehouse.errors import BrokerError
from pulsar_lakehouse.expectations.results import Validated
from pulsar_lakehouse.inspection.table_status import TableStatus
from pulsar_lakehouse.jobs import new_data as module
from pulsar_lakehouse.jobs.new_data import Kind, Reason, Step, is_little, reasons, reasons_since
from pulsar_lakehouse.pulsar.backlog import TopicStatus
from pulsar_lakehouse.records import ReconciliationRecord
from pulsar_lakehouse.settings import Settings, load_settings
from tests.contracts.test_sources import DECLARED
from tests.pipeline.projects import project
from tests.shop import SHOP, SQL_TABLES, SUITES

NOW = datetime.now(UTC)
ORDERS, USERS = "gold.enriched_orders", "silver.users"


def news(settings: Settings) -> str:
    """The line of the first reason to run."""
    return next((reason.line for reason in reasons(settings)), "")


def steps(settings: Settings) -> set[str]:
    """The steps that have something to do."""
    return {step.value for step in Step if any(reasons(settings, [step]))}


@pytest.fixture
def found(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """What the broker, the tables' logs and the last validation report: nothing is new."""
    names = [*(suite.table for suite in SUITES), *(table.name for table in SQL_TABLES)]
    table = TableStatus(
        name="", rows=1, version=3, size=1, files=1, deleted=None, made_at=NOW, ran_at=NOW, lag=0, lag_seconds=0.0
    )
    found = SimpleNamespace(
        backlog=0,
        tables={name: replace(table, name=name) for name in names},
        validated={name: Validated(version=3, at=NOW, whole_at=NOW, rows=1, usual_growth=None) for name in names},
        reconciled={
            topic.name: ReconciliationRecord(topic=topic.name, holds=True, difference=0, problems=(), at=time.time())
            for topic in SHOP.topics
        },
        unpublished=0,
    )
    monkeypatch.setattr(module, "endpoint", lambda _: None)
    monkeypatch.setattr(
        module,
        "topic_status",
        lambda topic, *_: TopicStatus(
            name=topic.name, messages=9, backlog=found.backlog, backlog_bytes=found.backlog * 2**20, lag_seconds=0.0
        ),
    )
    monkeypatch.setattr(module, "table_statuses", lambda _: list(found.tables.values()))
    monkeypatch.setattr(module, "last_validated", lambda _: found.validated)
    monkeypatch.setattr(module, "reconciliation_records", lambda _: list(found.reconciled.values()))
    monkeypatch.setattr(module, "unread_commits", lambda *_: found.unpublished)
    return found


def test_nothing_is_new_if_all_has_landed_was_read_and_passed(settings: Settings, found: SimpleNamespace) -> None:
    assert news(settings) == ""


def test_each_reason_has_its_name(settings: Settings, found: SimpleNamespace) -> None:
    found.tables[ORDERS] = replace(found.tables[ORDERS], lag=2)
    found.validated[ORDERS] = replace(found.validated[ORDERS], at=NOW - timedelta(hours=2))
    assert [reason.kind for reason in reasons(settings)] == [Kind.UNREAD, Kind.HOUR_PASSED]


@pytest.mark.parametrize(
    ("before", "now", "kinds"),
    [
        pytest.param({"users": 1, "silver.users": 7}, {"users": 1, "silver.users": 7}, [], id="nothing"),
        pytest.param({"users": 1, "silver.users": 7}, {"users": 2, "silver.users": 7}, [Kind.CHANGED], id="messages"),
        pytest.param({"silver.users": 7}, {}, [Kind.CHANGED], id="a table is gone"),
        pytest.param(None, {}, [Kind.UNKNOWN], id="no earlier look"),
        pytest.param({}, None, [Kind.UNKNOWN], id="one can't look"),
    ],
)
def test_what_is_new_since_a_look(
    before: dict[str, object] | None, now: dict[str, object] | None, kinds: list[Kind]
) -> None:
    assert [reason.kind for reason in reasons_since(before, now)] == kinds


def test_messages_that_have_not_landed_are_news(settings: Settings, found: SimpleNamespace) -> None:
    found.backlog = 5
    assert news(settings) == "items: 5 entries have not landed"


@pytest.mark.parametrize(("backlog", "size", "little"), [(1, 2**20, True), (10, 2**20, False), (0, 2**25, False)])
def test_little_is_by_the_size_of_backlogs_and_tables(
    settings: Settings, found: SimpleNamespace, backlog: int, size: int, little: bool
) -> None:
    found.backlog = backlog
    found.tables[ORDERS] = replace(found.tables[ORDERS], size=size)
    assert is_little(settings, SHOP.topics) == little
    assert is_little(settings, ()) == (size <= 2**20)


def test_what_can_not_be_read_is_not_little(
    settings: Settings, found: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "table_statuses", lambda _: 1 / 0)
    assert not is_little(settings, ())


def test_commits_that_were_not_read_are_news(settings: Settings, found: SimpleNamespace) -> None:
    found.tables[ORDERS] = replace(found.tables[ORDERS], lag=2)
    assert news(settings) == "gold.enriched_orders: 2 commits of its sources are newer"


def test_a_declared_table_that_is_not_there_is_news(settings: Settings, found: SimpleNamespace) -> None:
    del found.tables[SQL_TABLES[0].name]
    assert news(settings) == f"{SQL_TABLES[0].name}: no table, or no record of what it has read"


def test_a_lost_checkpoint_is_news(settings: Settings, found: SimpleNamespace) -> None:
    found.tables[ORDERS] = replace(found.tables[ORDERS], lag=None)
    assert news(settings) == "gold.enriched_orders: no table, or no record of what it has read"


def test_so_is_one_that_is_refreshed_as_a_whole(
    settings: Settings, found: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_full = replace(SHOP, sql_tables=(replace(SQL_TABLES[0], refresh="full"),))
    monkeypatch.setattr(module, "pipeline_of", lambda _: in_full)
    assert news(settings) == f"{SQL_TABLES[0].name} is declared to be refreshed as a whole"


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"version": 2}, "gold.enriched_orders has changed since its last validation, or was never validated"),
        ({"whole_at": None}, "gold.enriched_orders did not pass its validation"),
        ({"at": NOW - timedelta(hours=2)}, "gold.enriched_orders was last validated at "),
    ],
)
def test_tables_that_did_not_pass_as_they_are_or_not_lately_are_news(
    settings: Settings, found: SimpleNamespace, change: dict[str, object], told: str
) -> None:
    found.validated[ORDERS] = replace(found.validated[ORDERS], **change)
    assert news(settings).startswith(told)


def test_each_step_has_reasons_of_its_own(settings: Settings, found: SimpleNamespace) -> None:
    assert steps(settings) == set()
    found.backlog = 5
    assert steps(settings) == {"land"}
    found.backlog = 0
    for table, by in ((USERS, "merge"), (ORDERS, "enrich"), (SQL_TABLES[0].name, "refresh")):
        found.tables[table] = replace(found.tables[table], lag=2)
        assert steps(settings) == {by}
        found.tables[table] = replace(found.tables[table], lag=0)
    found.unpublished = 2
    assert steps(settings) == {"publish"}
    assert news(settings) == ""


def test_a_table_that_has_changed_is_reconciled_and_validated(settings: Settings, found: SimpleNamespace) -> None:
    later = datetime.now(UTC) + timedelta(seconds=1)
    found.tables[ORDERS] = replace(found.tables[ORDERS], version=4, ran_at=later)
    assert steps(settings) == {"reconcile", "validate"}


def test_a_table_of_sql_is_validated_when_it_is_refreshed(settings: Settings, found: SimpleNamespace) -> None:
    name = SQL_TABLES[0].name
    found.validated[name] = replace(found.validated[name], whole_at=None)
    assert steps(settings) == {"refresh"}


@pytest.mark.parametrize("change", [{"holds": False}, {"at": 0.0}])
def test_a_reconciliation_is_repeated_if_it_did_not_hold_or_after_an_hour(
    settings: Settings, found: SimpleNamespace, change: dict[str, object]
) -> None:
    found.reconciled["orders"] = replace(found.reconciled["orders"], **change)
    assert "reconcile" in steps(settings)


def test_a_first_publication_has_no_record(settings: Settings, found: SimpleNamespace) -> None:
    found.unpublished = None
    assert steps(settings) == {"publish"}


def test_without_a_broker_nobody_can_say_what_is_new(
    settings: Settings, found: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise BrokerError("no broker is running")

    monkeypatch.setattr(module, "topic_status", fail)
    with pytest.raises(BrokerError):
        news(settings)
    assert not any(reasons(settings, [Step.MERGE, Step.ENRICH, Step.RECONCILE, Step.VALIDATE]))


@pytest.mark.parametrize(("error", "told"), [(OSError("no room"), "no room"), (ValueError(), "ValueError")])
def test_what_can_not_be_read_is_for_a_step_to_tell_or_to_mend(
    settings: Settings, found: SimpleNamespace, monkeypatch: pytest.MonkeyPatch, error: Exception, told: str
) -> None:
    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr(module, "table_statuses", fail)
    assert news(settings) == told


def test_a_snapshot_that_is_due_is_a_reason_to_land(tmp_path: Path) -> None:
    source = 'Files("regions", "id BIGINT NOT NULL, name STRING", path="regions.csv")'
    folder = project(tmp_path, regions=DECLARED.format(source=source))
    found = load_settings(declarations=folder, home=tmp_path / "home")
    assert list(reasons(found, [Step.LAND])) == [Reason(Kind.NEW_SNAPSHOT, "bronze.regions: no table", 1)]
