"""The right to write a table, which one process at a time holds.

A lease is a lock on a file. The JVM inherits it, so it lasts until Python and Spark are both gone, however they go:
what takes over after a `kill -9` never writes beside what is still dying. The JVM of spark-submit can't inherit it: it
is killed when its Python is interrupted, but outlives a Python that got `kill -9` by a moment.
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
"""Commands that let go of a table before long, by what they write into its lease: others wait for them."""
PATIENCE = 20 * 60.0


@contextmanager
def write_lease(settings: Settings, tables: Iterable[str], *, command: str = "") -> Iterator[list[int]]:
    """Hold the leases of `tables`; yields their file descriptors, for the JVM to inherit.

    Waits for maintenance for some minutes. Raises BusyError, which names the holder, if another process has one of them.
    Others are told that `command` holds them, by default that of this process.
    """
    folder = settings.home / "leases"
    folder.mkdir(parents=True, exist_ok=True)
    until = time.monotonic() + PATIENCE
    with ExitStack() as held:
        files = []
        for table in sorted(tables):  # the same order for all, so that no two wait for each other
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
