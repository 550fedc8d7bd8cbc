"""Say on the terminal what is being waited for."""

from collections.abc import Iterator
from contextlib import contextmanager

from rich.status import Status
from rich.text import Text

from lakehouse.terminal import Terminal

CONSOLE = Terminal(stderr=True)


@contextmanager
def waiting(message: str) -> Iterator[Status]:
    """Show `message` with a spinner while the block runs; where there is no terminal, as one line."""
    if not CONSOLE.is_terminal:
        CONSOLE.say(message)
    with CONSOLE.status(Text(message)) as status:
        yield status
