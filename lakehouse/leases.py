"""The right to write a table, which one process at a time holds.

A lease is a lock on a file. The JVM inherits it, so it lasts until Python and Spark are both gone, however they go:
what takes over after a `kill -9` never writes beside what is still dying. The JVM of spark-submit can't inherit it: it
is killed when its Python is interrupted, but outlives a Python that got `kill -9` by a moment.
"""

import fcntl
import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from typing import IO

from lakehouse.errors import BusyError
from lakehouse.settings import Settings


@contextmanager
def write_lease(settings: Settings, tables: Iterable[str]) -> Iterator[list[int]]:
    """Hold the leases of `tables`; yields their file descriptors, for the JVM to inherit.

    Raises BusyError, which names the holder, if another process has one of them.
    """
    folder = settings.home / "leases"
    folder.mkdir(parents=True, exist_ok=True)
    with ExitStack() as held:
        files = []
        for table in sorted(tables):
            file = held.enter_context((folder / table).open("a+"))
            _take(file, table)
            files.append(file.fileno())
        yield files


def _take(file: IO[str], table: str) -> None:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        file.seek(0)
        holder = file.read().strip() or "another process"
        raise BusyError(f"{table} is being written by {holder}: wait until it ends, or stop it") from None
    file.truncate(0)
    command = " ".join(["lakehouse", *sys.argv[1:]])
    file.write(f"pid {os.getpid()} (`{command}`, since {datetime.now(UTC):%H:%M:%S} UTC)")
    file.flush()
