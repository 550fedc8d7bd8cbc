from pathlib import Path

from pulsar_lakehouse.cli import report
from pulsar_lakehouse.settings import load_settings


def test_a_note_has_a_line_for_each_thing_said(tmp_path: Path) -> None:
    settings = load_settings(run={"note_file": tmp_path / "note"})
    report.note(["users: 1 landed\nspoofed\x1b[31m", "orders: 2 landed"], settings)
    assert (tmp_path / "note").read_text() == "users: 1 landed\\nspoofed\\x1b[31m\norders: 2 landed\n"
