import json
from pathlib import Path

from pulsar_lakehouse.cli import report
from pulsar_lakehouse.jobs.streams import Outcome
from pulsar_lakehouse.settings import Settings, load_settings


def told(settings: Settings) -> list[str]:
    """The lines that are noted for Airflow."""
    assert settings.run.outcome_file is not None
    return [json.loads(line)["note"] for line in settings.run.outcome_file.read_text().splitlines()]


def test_a_note_has_a_line_for_each_thing_said(tmp_path: Path) -> None:
    settings = load_settings(run={"outcome_file": tmp_path / "outcome"})
    report.note(["users: 1 landed\nspoofed\x1b[31m", "orders: 2 landed"], settings)
    assert told(settings) == ["users: 1 landed\\nspoofed\\x1b[31m", "orders: 2 landed"]


def test_a_step_notes_what_it_has_read(tmp_path: Path) -> None:
    settings = load_settings(run={"outcome_file": tmp_path / "outcome"})
    read = {"land users": 0, "land orders": 1200, "land items": 3, "merge users": 0}
    report.outcomes([Outcome(name=name, rows=rows, seconds=1.0) for name, rows in read.items()], settings)
    assert told(settings) == ["land: 1,200 rows (orders), 3 rows (items)", "merge: no new rows"]
