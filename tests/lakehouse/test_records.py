from pathlib import Path

from lakehouse.reconciliation import Reconciliation
from lakehouse.records import (
    ReconciliationRecord,
    StepRecord,
    keep_reconciliations,
    keep_step,
    reconciliation_records,
    step_record,
    step_records,
)
from lakehouse.settings import Settings
from tests.lake import own_home


def test_the_record_of_a_step_outlives_its_run(settings: Settings, tmp_path: Path) -> None:
    lake = own_home(settings, tmp_path)
    assert step_record(lake, "land orders") == StepRecord(step="land orders")
    kept = StepRecord(step="land orders", rows=12, batches=2, seconds=1.5, retries=1, failure="the disk is full")
    keep_step(lake, kept)
    assert step_records(lake) == [kept]
    next((tmp_path / "records").iterdir()).write_text("{")
    assert step_records(lake) == [StepRecord(step="land orders")]


def test_the_last_reconciliation_is_kept(settings: Settings, tmp_path: Path) -> None:
    lake = own_home(settings, tmp_path)
    assert reconciliation_records(lake) == []
    keep_reconciliations(
        lake, [Reconciliation(topic="orders", landed=9, accounted={"enriched": 7}, problems=("2 in no table",))]
    )
    [record] = reconciliation_records(lake)
    expected = ReconciliationRecord(
        topic="orders", holds=False, difference=2, problems=("2 in no table",), at=record.at
    )
    assert record == expected
