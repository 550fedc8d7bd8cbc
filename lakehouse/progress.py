"""Say on the terminal what is being waited for."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.status import Status
from rich.text import Text

from lakehouse.terminal import Terminal

CONSOLE = Terminal(stderr=True)


@contextmanager
def spinner(message: str) -> Iterator[Status]:
    """Show `message` with a spinner while the block runs; where there is no terminal, as one line."""
    if not CONSOLE.is_terminal:
        CONSOLE.say(message)
    with CONSOLE.status(Text(message)) as status:
        yield status


def wait_until(condition: Callable[[], bool], message: str, timeout: float) -> bool:
    """Whether `condition` came true in time; the message is shown only if it is not true at once."""
    if condition():
        return True
    deadline = time.monotonic() + timeout
    with spinner(message):
        while time.monotonic() < deadline:
            time.sleep(0.2)
            if condition():
                return True
    return False
