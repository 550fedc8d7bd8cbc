"""What is printed, which may quote data: it can't move the cursor, set a title or stand for another line."""

import re
from collections.abc import Iterator

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

# C0, DEL and C1; what turns the direction of text, or ends a line; halves of characters, which have no UTF-8.
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def visible(text: str) -> str:
    r"""The text with each control character as `\x1b`, but for the ends of lines."""
    return "\n".join(map(one_line, text.split("\n")))


def one_line(text: str) -> str:
    r"""The text with each control character as `\x1b` or `\n`."""
    return _CONTROL.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


class Terminal(Console):
    """A console that prints text as it is, without markup, and control characters as they are written in Python."""

    def __init__(self, *, stderr: bool = False) -> None:
        super().__init__(stderr=stderr, markup=False, emoji=False, highlight=False)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterator[Segment]:
        for segment in super().render(renderable, options):
            yield segment if segment.is_control else segment._replace(text=visible(segment.text))

    def say(self, text: str, style: str | None = None) -> None:
        """Print lines that the terminal may wrap, but that are not broken for it."""
        self.print(visible(text), style=style, soft_wrap=True)
