from pathlib import Path

from cli import report
from lakehouse.settings import load_settings


def test_a_note_has_a_line_for_each_thing_said(tmp_path: Path) -> None:
    settings = load_settings(run={"note_file": tmp_path / "note"})
    report.note(["users: 1 landed\nspoofed\x1b[31m", "orders: 2 landed"], settings)
    assert (tmp_path / "note").read_text() == "users: 1 landed\\nspoofed\\x1b[31m\norders: 2 landed\n"


def test_what_a_note_quotes_is_no_link() -> None:
    assert report.quoted("such as `[x](http://e.org)`") == "`such as '[x](http://e.org)'`"
    assert report.quoted("x" * 1000) == f"`{'x' * report.QUOTED}`"
