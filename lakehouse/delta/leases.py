"""Leases: the right to write a table, which only one process holds at a time.

A lease is a lock on a file. The JVM inherits it, so it lasts until both Python and Spark have ended, even after a
`kill -9`: a new process never writes while the old one is still dying. The JVM of spark-submit can't inherit it. That
JVM is killed when its Python is interrupted, but after a `kill -9` it outlives its Python for a moment.
"""

import fcntl
import os
import re
import socket
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from typing import IO

from lakehouse.errors import BusyError
from lakehouse.progress import wait_until
from lakehouse.settings import Settings

MAINTENANCE = re.compile(r"`lakehouse (maintain|purge)\b")
"""Matches the leases of commands that release a table soon, so that others wait for them."""
PATIENCE = 20 * 60.0
"""Seconds to wait for them."""


@contextmanager
def write_lease(settings: Settings, tables: Iterable[str], *, command: str = "") -> Iterator[list[int]]:
    """Hold the leases of `tables` while the block runs. Yields their file descriptors, for the JVM to inherit.

    Waits up to 20 minutes for maintenance. Raises BusyError, which names the holder, if another process has a lease.
    `command` is what other processes see as the holder; by default, the command line of this process.
    """
    folder = settings.home / "leases"
    folder.mkdir(parents=True, exist_ok=True)
    until = time.monotonic() + PATIENCE
    with ExitStack() as held:
        files = []
        for table in sorted(tables):  # all processes use the same order, which avoids deadlocks
            file = held.enter_context((folder / table).open("a+"))
            _take(file, table, until)
            _sign(file, command or " ".join(sys.argv[1:]))
            files.append(file.fileno())
        yield files


def _take(file: IO[str], table: str, until: float) -> None:
    def is_free() -> bool:
        return _lock(file) or not MAINTENANCE.search(_holder(file))

    wait_until(is_free, f"Waiting for the maintenance of {table} by {_holder(file)}", until - time.monotonic())
    if not _lock(file):
        raise BusyError(f"{table} is being written by {_holder(file)}: wait until it ends, or stop it")


def _sign(file: IO[str], command: str) -> None:
    file.truncate(0)
    since = f"{datetime.now(UTC):%H:%M:%S} UTC"
    file.write(f"pid {os.getpid()} on {socket.gethostname()} (`lakehouse {command}`, since {since})")
    file.flush()


def _lock(file: IO[str]) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _holder(file: IO[str]) -> str:
    file.seek(0)
    return file.read().strip() or "another process"
