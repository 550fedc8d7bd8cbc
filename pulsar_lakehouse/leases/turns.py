"""Lock files of a home, and turns: the moments in which the tables of a lease don't change.

Beside the lock of each lease there is a second one, the turn. Who holds a lease has the turn too. `lakehouse run
--every` lends its turns between two rounds, to maintenance and to commands that need tables which do not change
meanwhile. So maintenance of the same home never rewrites files that a MERGE is reading, and no MERGE fails because of
it.
"""

import fcntl
import json
import time
from collections.abc import Collection, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import IO

from pulsar_lakehouse.errors import BusyError
from pulsar_lakehouse.leases.holders import UNKNOWN, Holder, Kind, known
from pulsar_lakehouse.settings import Settings

POLL_SECONDS = 0.02
"""Seconds between two looks for a turn. It is less than a turn is lent for."""


@dataclass(frozen=True)
class Lock:
    """A file that one process can lock at a time. Who does so writes there who it is."""

    file: IO[bytes]

    def take(self) -> bool:
        """Lock the file; returns whether that was possible, or this process had locked it before."""
        try:
            fcntl.flock(self.file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def free(self) -> None:
        fcntl.flock(self.file, fcntl.LOCK_UN)

    def sign(self, command: str, kind: Kind) -> None:
        self.file.truncate(0)
        self.file.write(Holder.here(command, kind).model_dump_json().encode())
        self.file.flush()

    @property
    def holder(self) -> Holder:
        """Who has signed the file last."""
        self.file.seek(0)
        try:
            return known(json.loads(self.file.read()))
        except ValueError:
            return UNKNOWN


@contextmanager
def lock_file(settings: Settings, name: str) -> Iterator[Lock]:
    """Open a lock file, and create it if there is none. Its lock is free after the block, if no heir of it is left."""
    folder = settings.home / "leases"
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / name).open("a+b") as file:
        yield Lock(file)


def turn_of(table: str) -> str:
    """The name of the lock file of the turn."""
    return f"{table}.turn"


@contextmanager
def turn_at(
    settings: Settings, tables: Iterable[str], *, command: str, kind: Kind, patience: float
) -> Iterator[Collection[Lock]]:
    """Hold the turns at `tables` while the block runs: all of them at once, or none.

    Raises BusyError, which names a writer, if there is no such moment within `patience` seconds.
    """
    with ExitStack() as opened:
        turns = {table: opened.enter_context(lock_file(settings, turn_of(table))) for table in tables}
        until = time.monotonic() + patience
        while busy := _first_busy(turns):
            if time.monotonic() >= until:
                raise BusyError(f"{busy} is being written by {turns[busy].holder}")
            time.sleep(POLL_SECONDS)
        for turn in turns.values():
            turn.sign(command, kind)
        yield turns.values()


def _first_busy(turns: dict[str, Lock]) -> str | None:
    """Take all turns; or none, and return the first table whose turn another process has."""
    for table, turn in turns.items():
        if not turn.take():
            for taken in turns.values():
                taken.free()
            return table
    return None
