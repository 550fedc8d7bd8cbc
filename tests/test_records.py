from pathlib import Path

from pulsar_lakehouse.reconciliation import Reconciliation
from pulsar_lakehouse.records import (
    ReconciliationRecord,
    StepRecord,
    keep_reconciliations,
    keep_step,
    reconciliation_records,
    step_record,
    step_records,
)
from pulsar_lakehouse.settings import Settings
from tests.lake import own_home


def test_the_record_of_a_step_outlives_its_run(settings: Settings, tmp_path: Path) -> None:
    project = own_home(settings, tmp_path)
    assert step_record(project, "land orders") == StepRecord(step="land orders")
    kept = StepRecord(step="land orders", rows=12, batches=2, seconds=1.5, retries=1, failure="the disk is full")
    keep_step(project, kept)
    assert step_records(project) == [kept]
    next((tmp_path / "records").iterdir()).write_text("{")
    assert step_records(project) == [StepRecord(step="land orders")]


def test_records_of_other_releases_are_read_as_far_as_they_are_known(settings: Settings, tmp_path: Path) -> None:
    project = own_home(settings, tmp_path)
    (tmp_path / "records").mkdir()
    (tmp_path / "records" / "land orders.json").write_text('{"step": "land orders", "rows": 2, "colour": "red"}')
    (tmp_path / "records" / "land users.json").write_text("[]")
    known = '{"topic": "users", "holds": true, "difference": 0, "problems": [], "at": 5, "colour": "red"}'
    (tmp_path / "records" / "reconciliation.json").write_text(f'[{known}, {{"topic": "items"}}, 3]')
    assert step_records(project) == [StepRecord(step="land orders", rows=2), StepRecord(step="land users")]
    assert [each.topic for each in reconciliation_records(project)] == ["users"]


def test_a_record_that_can_not_be_kept_stops_nothing_and_leaves_nothing(settings: Settings, tmp_path: Path) -> None:
    project = own_home(settings, tmp_path)
    (tmp_path / "records" / "land orders.json" / "in the way").mkdir(parents=True)
    keep_step(project, StepRecord(step="land orders"))
    assert [path.name for path in (tmp_path / "records").iterdir()] == ["land orders.json"]
    (tmp_path / "no folder").touch()
    keep_reconciliations(own_home(project, tmp_path / "no folder"), [])


def test_the_last_reconciliation_is_kept(settings: Settings, tmp_path: Path) -> None:
    project = own_home(settings, tmp_path)
    assert reconciliation_records(project) == []
    keep_reconciliations(
        project, [Reconciliation(topic="orders", landed=9, accounted={"enriched": 7}, problems=("2 in no table",))]
    )
    [record] = reconciliation_records(project)
    expected = ReconciliationRecord(
        topic="orders", holds=False, difference=2, problems=("2 in no table",), at=record.at
    )
    assert record == expected
