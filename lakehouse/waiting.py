"""Say on the terminal what is being waited for."""

from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.status import Status

CONSOLE = Console(stderr=True)


@contextmanager
def waiting(message: str) -> Iterator[Status]:
    """Show `message` with a spinner while the block runs; where there is no terminal, as one line."""
    if not CONSOLE.is_terminal:
        CONSOLE.print(message, soft_wrap=True)
    with CONSOLE.status(message) as status:
        yield status
