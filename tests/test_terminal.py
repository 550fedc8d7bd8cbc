from datetime import datetime

import pytest
from rich.text import Text

from pulsar_lakehouse.terminal import Terminal, moment, one_line, visible


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b[31mred\x07", r"\x1b[31mred\x07"),
        ("tab\tend\r\n", r"tab\tend\r\n"),
        ("del\x7f c1\x9b31m", r"del\x7f c1\x9b31m"),
        ("\u202etxt.exe \u2066\u2028", r"\u202etxt.exe \u2066\u2028"),
        ("half of a pair \ud83d", r"half of a pair \ud83d"),
        ("naïve 日本 👩\u200d💻 שלום [bold] :smile:", "naïve 日本 👩\u200d💻 שלום [bold] :smile:"),
    ],
)
def test_control_characters_are_shown(text: str, shown: str) -> None:
    assert one_line(text) == shown


def test_lines_can_stay_lines() -> None:
    assert visible("a\nb\x1b\n") == "a\nb\\x1b\n"


@pytest.mark.parametrize(
    "what", ["\x1b]0;title [link=http://e]go[/] :smile:", Text("\x1b]0;title [link=http://e]go[/] :smile:")]
)
def test_nothing_that_is_printed_is_markup_or_reaches_the_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, what: str | Text
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    Terminal().print(what)
    assert capsys.readouterr().out == r"\x1b]0;title [link=http://e]go[/] :smile:" + "\n"


@pytest.mark.parametrize(
    ("time", "shown"),
    [("2026-01-02T03:04:00", "2026-01-02 03:04:00"), ("2026-01-02T03:04:10.120", "2026-01-02 03:04:10.12")],
)
def test_a_moment_has_the_fraction_of_its_second(time: str, shown: str) -> None:
    assert moment(datetime.fromisoformat(time)) == shown
