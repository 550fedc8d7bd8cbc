"""Safe printing of text that may quote data: it can't move the cursor, set a title or pretend to be another line."""

import os
import re
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

# C0, DEL and C1; characters that change the direction of text or end a line; surrogates, which UTF-8 can't encode.
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


WIDTH = 200
"""Columns where there is no terminal, such as in a file: tables are not cut."""


def visible(text: str) -> str:
    r"""The text with each control character escaped, such as `\x1b`; newlines stay."""
    return "\n".join(map(one_line, text.split("\n")))


def one_line(text: str) -> str:
    r"""The text with each control character escaped, such as `\x1b` or `\n`."""
    return _CONTROL.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def shown(path: Path) -> str:
    """The path as errors name it: relative to the working directory if it is inside."""
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else str(path)


def duration(seconds: float) -> str:
    """The seconds in their largest unit, such as `3 min`."""
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if seconds >= size:
            return f"{int(seconds // size)} {unit}"
    return f"{max(int(seconds), 0)} s"


def moment(at: datetime) -> str:
    """The time with all digits of its second that are not zero."""
    return f"{at:%Y-%m-%d %H:%M:%S.%f}".rstrip("0").rstrip(".")


class Terminal(Console):
    """A console that does not interpret markup, and prints control characters as Python escapes."""

    def __init__(self, *, stderr: bool = False) -> None:
        super().__init__(stderr=stderr, markup=False, emoji=False, highlight=False)
        if not self.is_terminal and "COLUMNS" not in os.environ:
            self.width = WIDTH

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterator[Segment]:
        for segment in super().render(renderable, options):
            yield segment if segment.is_control else segment._replace(text=visible(segment.text))

    def say(self, text: str, style: str | None = None) -> None:
        """Print lines without inserting line breaks; the terminal may wrap them."""
        self.print(visible(text), style=style, soft_wrap=True)
