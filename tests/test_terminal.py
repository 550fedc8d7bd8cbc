import pytest
from rich.text import Text

from pulsar_lakehouse.terminal import Terminal, one_line, visible


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
