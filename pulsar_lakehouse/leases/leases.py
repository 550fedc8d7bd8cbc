"""Leases: the right to write a table, which only one process holds at a time.

A lease is a lock on a file. The JVM inherits it, so it lasts until both Python and Spark have ended, even after a
`kill -9`: a new process never writes while the old one is still dying. The JVM of spark-submit can't inherit it. That
JVM is killed when its Python is interrupted, but after a `kill -9` it outlives its Python for a moment.

Tables in an object store can be written from several homes. There, a process that has the lock also takes a claim
beside the tables (`claims.py`).

Beside each lease there is a second lock, the turn. Who holds a lease has the turn too. `lakehouse run --every` lends
its turns between two rounds, to maintenance and to commands that need tables which do not change meanwhile. So
maintenance of the same home never rewrites files that a MERGE is reading, and no MERGE fails because of it.
"""

import fcntl
import os
import re
import socket
import sys
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import IO

from pulsar_lakehouse.errors import BusyError
from pulsar_lakehouse.leases.claims import claimed
from pulsar_lakehouse.leases.homes import refuse_other_home
from pulsar_lakehouse.progress import CONSOLE, spinner, wait_until
from pulsar_lakehouse.settings import Settings, is_remote

MAINTENANCE = re.compile(r"`lakehouse (maintain|purge|forget)\b")
"""Matches the leases and turns of commands that release a table soon, so that others wait for them."""
LENDS = re.compile(r"`lakehouse run\b[^`]* --every\b")
"""Matches the leases of commands that lend the turns again and again."""
PATIENCE = 20 * 60.0
"""Seconds to wait for them, and for which they wait for a turn."""
POLL_SECONDS = 0.02
"""Seconds between two looks for a turn. It is less than a turn is lent for."""


@dataclass(frozen=True)
class Lease:
    """The leases of some tables, and the turns at them, which other processes wait for."""

    locks: list[IO[str]]
    turns: list[IO[str]]
    command: str

    @property
    def files(self) -> list[int]:
        """File descriptors, for the JVM to inherit."""
        return [file.fileno() for file in (*self.locks, *self.turns)]

    @contextmanager
    def lent(self, beat: Callable[[], None] = lambda: None) -> Iterator[None]:
        """Let others have the turns from now on. After the block, wait until they have given them back.

        `beat` is called again and again meanwhile.
        The caller must not write meanwhile. Only those who have the turns can.
        """
        for turn in self.turns:
            fcntl.flock(turn, fcntl.LOCK_UN)
        yield
        for turn in self.turns:
            if not _lock(turn):
                CONSOLE.say(f"Waiting for {_holder(turn)}")
                while not _lock(turn):
                    beat()
                    time.sleep(POLL_SECONDS)
            _sign(turn, self.command)


@contextmanager
def write_lease(settings: Settings, tables: Iterable[str], *, command: str = "") -> Iterator[Lease]:
    """Hold the leases of `tables`, and the turns at them, while the block runs.

    Waits up to 20 minutes for maintenance. Raises BusyError, which names the holder, if another process has a lease.
    Raises ConfigurationError if another home writes the folder of the tables.
    `command` is what other processes see as the holder; by default, the command line of this process.
    """
    names, until = sorted(tables), time.monotonic() + PATIENCE  # the same order avoids deadlocks
    if names:
        refuse_other_home(settings)
    with ExitStack() as held:
        lease = held.enter_context(_locked(settings, names, command, until))
        if is_remote(settings.warehouse_root):
            holder = _description(lease.command)
            held.enter_context(claimed(settings, names, holder, until=until, waits_for=MAINTENANCE))
        yield lease


@contextmanager
def lease_between_rounds(settings: Settings, tables: Iterable[str]) -> Iterator[Lease]:
    """Like `write_lease`, but tables that `lakehouse run --every` of this home has are no obstacle.

    It waits up to 20 minutes for a moment between two rounds. The next one begins when this process, and a JVM that has
    inherited the lease, have ended. In an object store, the claims of a run that is killed meanwhile expire, and then
    another home can begin to write: Delta's checks are what is left.
    """
    names, until = sorted(tables), time.monotonic() + PATIENCE
    if names:
        refuse_other_home(settings)
    with ExitStack() as held:
        lease = Lease([], [], " ".join(sys.argv[1:]))
        files = {table: held.enter_context(_open(settings, table)) for table in names}
        waits = [_is_lent(file, table) for table, file in files.items()]
        turns = turn_at(settings, names, command=lease.command, patience=until - time.monotonic())
        with spinner("Waiting for the end of a round of `lakehouse run --every`") if any(waits) else nullcontext():
            lease.turns.extend(held.enter_context(turns))
        # With all turns, it waits for no lock any more, so there are no deadlocks.
        free = [table for table, file in files.items() if not _is_lent(file, table, keep=True)]
        for table in free:
            _sign(files[table], lease.command)
            lease.locks.append(files[table])
        if is_remote(settings.warehouse_root):  # the other process has claimed the others
            holder = _description(lease.command)
            held.enter_context(claimed(settings, free, holder, until=until, waits_for=MAINTENANCE))
        yield lease


def _is_lent(file: IO[str], table: str, *, keep: bool = False) -> bool:
    """Whether another process has the lease, and lends the turn. With `keep`, a free lease stays locked.

    Raises BusyError if its holder does not lend the turn. Maintenance is waited for by its turn.
    """
    if _lock(file):
        if not keep:
            fcntl.flock(file, fcntl.LOCK_UN)
        return False
    if LENDS.search(_holder(file)) or (not keep and MAINTENANCE.search(_holder(file))):
        return True
    raise BusyError(f"{table} is being written by {_holder(file)}: wait until it ends, or stop it")


@contextmanager
def home_lock(settings: Settings, name: str) -> Iterator[Lease]:
    """Like `write_lease`, for what only one process of a home does, whatever other homes do."""
    with _locked(settings, [name], "", time.monotonic() + PATIENCE) as lease:
        yield lease


@contextmanager
def _locked(settings: Settings, names: Iterable[str], command: str, until: float) -> Iterator[Lease]:
    with ExitStack() as held:
        lease = Lease([], [], command or " ".join(sys.argv[1:]))
        for table in names:
            for files, name in ((lease.locks, table), (lease.turns, f"{table}.turn")):
                file = held.enter_context(_open(settings, name))
                _take(file, table, until, is_turn=files is lease.turns)
                _sign(file, lease.command)
                files.append(file)
        yield lease


@contextmanager
def turn_at(
    settings: Settings, tables: Iterable[str], *, command: str, patience: float
) -> Iterator[Collection[IO[str]]]:
    """Hold the turns at `tables` while the block runs: all of them at once, or none.

    Raises BusyError, which names a writer, if there is no such moment within `patience` seconds.
    """
    with ExitStack() as opened:
        turns = {table: opened.enter_context(_open(settings, f"{table}.turn")) for table in tables}
        until = time.monotonic() + patience
        while busy := _first_busy(turns):
            if time.monotonic() >= until:
                raise BusyError(f"{busy} is being written by {_holder(turns[busy])}")
            time.sleep(POLL_SECONDS)
        for turn in turns.values():
            _sign(turn, command)
        yield turns.values()


def _first_busy(turns: dict[str, IO[str]]) -> str | None:
    """Take all turns; or none, and return the first table whose turn another process has."""
    for table, turn in turns.items():
        if not _lock(turn):
            for taken in turns.values():
                fcntl.flock(taken, fcntl.LOCK_UN)
            return table
    return None


def _open(settings: Settings, name: str) -> IO[str]:
    folder = settings.home / "leases"
    folder.mkdir(parents=True, exist_ok=True)
    return (folder / name).open("a+")


def _take(file: IO[str], table: str, until: float, *, is_turn: bool) -> None:
    """Lock the file, and wait for maintenance. A turn is waited for whoever has it: it comes back soon."""

    def is_free() -> bool:
        return _lock(file) or not (is_turn or MAINTENANCE.search(_holder(file)))

    wait_until(is_free, f"Waiting for {table}, which {_holder(file)} has", until - time.monotonic())
    if not _lock(file):
        raise BusyError(f"{table} is being written by {_holder(file)}: wait until it ends, or stop it")


def _sign(file: IO[str], command: str) -> None:
    file.truncate(0)
    file.write(_description(command))
    file.flush()


def _description(command: str) -> str:
    since = f"{datetime.now(UTC):%H:%M:%S} UTC"
    return f"pid {os.getpid()} on {socket.gethostname()} (`lakehouse {command}`, since {since})"


def _lock(file: IO[str]) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _holder(file: IO[str]) -> str:
    file.seek(0)
    return file.read().strip() or "another process"
