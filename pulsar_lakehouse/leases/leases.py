"""Leases: the right to write a table, which only one process holds at a time.

A lease is a lock on a file. The JVM inherits it, or is lent with it by the engine, so it lasts until both Python and
Spark have ended, even after a `kill -9`: a new process never writes while the old one is still dying.

Who has the lease of a table also has the turn at it (`turns.py`), and a claim of it if the table is in an object store,
where several homes can write it (`claims.py`).
"""

import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field

from pulsar_lakehouse.leases.claims import claimed
from pulsar_lakehouse.leases.holders import Holder, Kind, busy
from pulsar_lakehouse.leases.homes import refuse_other_home
from pulsar_lakehouse.leases.turns import POLL_SECONDS, Lock, lock_file, turn_at, turn_of
from pulsar_lakehouse.power_cuts import remove_torn_commits
from pulsar_lakehouse.progress import CONSOLE, spinner, wait_until
from pulsar_lakehouse.settings import Settings

PATIENCE = 20 * 60.0
"""Seconds to wait for maintenance, and for which maintenance waits for a turn."""


@dataclass(frozen=True, kw_only=True)
class Lease:
    """The leases of some tables, and the turns at them. `command` and `kind` are what others see as their holder."""

    command: str
    kind: Kind
    locks: list[Lock] = field(default_factory=list)
    turns: list[Lock] = field(default_factory=list)

    @property
    def files(self) -> list[int]:
        """File descriptors, for the JVM to inherit."""
        return [lock.file.fileno() for lock in (*self.locks, *self.turns)]

    @contextmanager
    def lent(self, beat: Callable[[], None] = lambda: None) -> Iterator[None]:
        """Let others have the turns from now on. After the block, wait until they have given them back.

        `beat` is called again and again meanwhile.
        The caller must not write meanwhile. Only those who have the turns can.
        """
        for turn in self.turns:
            turn.free()
        yield
        for turn in self.turns:
            if not turn.take():
                CONSOLE.say(f"Waiting for {turn.holder}")
                while not turn.take():
                    beat()
                    time.sleep(POLL_SECONDS)
            turn.sign(self.command, self.kind)


@contextmanager
def write_lease(
    settings: Settings, tables: Iterable[str], *, command: str = "", kind: Kind = "step"
) -> Iterator[Lease]:
    """Hold the leases of `tables`, and the turns at them, while the block runs.

    Waits up to 20 minutes for maintenance. Raises BusyError, which names the holder, if another process has a lease.
    Raises ConfigurationError if another home writes the folder of the tables.
    `command` is what other processes see as the holder; by default, the command line of this process.
    """
    names, until = sorted(tables), time.monotonic() + PATIENCE  # the same order avoids deadlocks
    if names:
        refuse_other_home(settings)
        remove_torn_commits(settings)
    lease = Lease(command=command or _command_line(), kind=kind)
    with _locked(settings, names, lease, until), claimed(settings, names, Holder.here(lease.command, kind), until):
        yield lease


@contextmanager
def lease_between_rounds(settings: Settings, tables: Iterable[str], *, kind: Kind = "step") -> Iterator[Lease]:
    """Like `write_lease`, but tables that `lakehouse run --every` of this home has are no obstacle.

    It waits up to 20 minutes for a moment between two rounds. The next one begins when this process, and a JVM that has
    inherited the lease, have ended. In an object store, the claims of a run that is killed meanwhile expire, and then
    another home can begin to write: Delta's checks are what is left.
    """
    names, until = sorted(tables), time.monotonic() + PATIENCE
    if names:
        refuse_other_home(settings)
        remove_torn_commits(settings)
    lease = Lease(command=_command_line(), kind=kind)
    with ExitStack() as held:
        locks = {table: held.enter_context(lock_file(settings, table)) for table in names}
        waits = False
        for table, lock in locks.items():
            waits |= not _take(lock, table, or_wait_for=("rounds", "maintenance"))
            lock.free()
        turns = turn_at(settings, names, command=lease.command, kind=kind, patience=until - time.monotonic())
        with spinner("Waiting for the end of a round of `lakehouse run --every`") if waits else nullcontext():
            lease.turns.extend(held.enter_context(turns))
        # With all turns, it waits for no lock any more, so there are no deadlocks.
        free = [table for table, lock in locks.items() if _take(lock, table, or_wait_for=("rounds",))]
        for table in free:
            locks[table].sign(lease.command, kind)
            lease.locks.append(locks[table])
        # The other process has claimed the others.
        held.enter_context(claimed(settings, free, Holder.here(lease.command, kind), until))
        yield lease


def _take(lock: Lock, table: str, *, or_wait_for: tuple[Kind, ...]) -> bool:
    """Take a lease; returns whether it was free. Raises BusyError if its holder is of no kind that is waited for."""
    if lock.take():
        return True
    if (holder := lock.holder).kind in or_wait_for:
        return False
    raise busy(table, holder)


@contextmanager
def home_lock(settings: Settings, name: str) -> Iterator[Lease]:
    """Like `write_lease`, for what only one process of a home does, whatever other homes do."""
    lease = Lease(command=_command_line(), kind="step")
    with _locked(settings, [name], lease, time.monotonic() + PATIENCE):
        yield lease


@contextmanager
def _locked(settings: Settings, names: Iterable[str], lease: Lease, until: float) -> Iterator[None]:
    """Take the locks and the turns of a lease, and wait for maintenance to free them.

    A turn is waited for whoever has it: it comes back soon.
    """
    with ExitStack() as held:
        for table in names:
            for locks, name in ((lease.locks, table), (lease.turns, turn_of(table))):
                lock = held.enter_context(lock_file(settings, name))
                _wait_for(lock, table, until, whoever_has_it=locks is lease.turns)
                lock.sign(lease.command, lease.kind)
                locks.append(lock)
        yield


def _wait_for(lock: Lock, table: str, until: float, *, whoever_has_it: bool) -> None:
    def is_decided() -> bool:
        return lock.take() or not (whoever_has_it or lock.holder.kind == "maintenance")

    wait_until(is_decided, f"Waiting for {table}, which {lock.holder} has", until - time.monotonic())
    if not lock.take():
        raise busy(table, lock.holder)


def _command_line() -> str:
    return " ".join(sys.argv[1:])
