"""Shows on the terminal what a command is waiting for."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.status import Status
from rich.text import Text

from pulsar_lakehouse.terminal import Terminal

CONSOLE = Terminal(stderr=True)


@contextmanager
def spinner(message: str) -> Iterator[Status]:
    """Show `message` with a spinner while the block runs; without a terminal, print it as one line."""
    if not CONSOLE.is_terminal:
        CONSOLE.say(message)
    with CONSOLE.status(Text(message)) as status:
        yield status


def wait_until(condition: Callable[[], bool], message: str, timeout: float) -> bool:
    """Whether `condition` became true within `timeout` seconds. Shows the message unless it is true at once."""
    if condition():
        return True
    deadline = time.monotonic() + timeout
    with spinner(message):
        while time.monotonic() < deadline:
            time.sleep(0.2)
            if condition():
                return True
    return False
