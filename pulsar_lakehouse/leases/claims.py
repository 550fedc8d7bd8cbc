"""Claims: the right to write a table in an object store, among the processes of all homes.

The claims of a table are objects `.leases/<table>/<number>` beside the tables. Each number is created only if it is not
there, and the highest one is valid. Its holder writes it anew every 10 seconds. A process that wants the table takes
the next number if the holder has released its own, or has not written it for 2 minutes, by the clock of who waits; or
at once if it has the same home, whose lock says that the holder is dead.

A holder that finds a higher number ends at once, and so does one that can't write its own for 90 seconds.
"""

import json
import os
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import NoReturn

import obstore
import psutil
from obstore.exceptions import AlreadyExistsError, BaseError
from obstore.store import ObjectStore

from pulsar_lakehouse.engine.borrowing import LOANS
from pulsar_lakehouse.errors import BusyError
from pulsar_lakehouse.leases.holders import UNKNOWN, Holder, busy, known
from pulsar_lakehouse.leases.homes import ID, home_id
from pulsar_lakehouse.progress import CONSOLE, wait_until
from pulsar_lakehouse.settings import Settings
from pulsar_lakehouse.storage import folder, has_tables

RENEWAL, GIVE_UP, EXPIRY = 10.0, 90.0, 120.0
"""Seconds between writes of a claim, without a write until its holder ends, and until others may take over."""


@dataclass(frozen=True, kw_only=True)
class _Held:
    number: int
    holder: Holder
    home: str
    beat: int
    """How often the claim was renewed; -1 after it was released."""


@dataclass(kw_only=True)
class Claims:
    """The claims of one process, which waits `until` a time for maintenance."""

    store: ObjectStore
    holder: Holder
    home: str
    until: float

    def __post_init__(self) -> None:
        self.numbers: dict[str, int] = {}
        self._beat, self._renewed, self._failure = 0, time.monotonic(), ""

    def take(self, tables: Sequence[str]) -> None:
        """Wait until the tables are free, and claim them. Raises BusyError, which names the holder, if one is written.

        All are watched from the beginning, so those of a dead holder take 2 minutes together.
        """
        seen = {table: (self._last(table), time.monotonic()) for table in tables}
        for table, (first, watched) in seen.items():
            self._take(table, first, watched)

    def _take(self, table: str, first: _Held | None, watched: float) -> None:
        """`first` is the claim when it was `watched` for the first time: it is free if it stays so until it expires."""

        def is_decided() -> bool:
            nonlocal first, watched
            last = self._last(table)
            if last is None or self._is_free(last) or (last == first and time.monotonic() - watched > EXPIRY):
                return self._create(table, last.number + 1 if last else 0)
            if last != first and last.holder.kind == "maintenance":
                first, watched = last, time.monotonic()
            return last != first

        waiting = f"Waiting for {_holder(first)} to show that it still writes {table}, or to release it"
        wait_until(is_decided, waiting, max(self.until - time.monotonic(), 2 * EXPIRY))
        if table not in self.numbers:
            raise busy(table, _holder(self._last(table)))

    def renew(self) -> None:
        """Write the claims anew. Ends this process if it has lost one.

        They count as renewed when it began: an answer may come long after what others see, and what they wait from.
        """
        began = time.monotonic()
        self._beat += 1
        for table, number in list(self.numbers.items()):  # the other thread may add one
            last = self._last(table)
            if last is None or last.number != number:
                _end(f"{table}: the right to write it was lost to {_holder(last)}", BusyError.exit_code)
            obstore.put(self.store, f"{table}/{number:020}", self._content())
        self._renewed = began

    def renew_until(self, stop: threading.Event) -> None:
        while not stop.wait(RENEWAL):
            try:
                self.renew()
            except Exception as error:  # whatever it is, the claim is not renewed
                self._failure = str(error).partition("\n")[0]

    def watch_until(self, stop: threading.Event) -> None:
        """End this process if its claims are not renewed in time, also while a request hangs."""
        while not stop.wait(1):
            if time.monotonic() - self._renewed > GIVE_UP:
                reason = self._failure or "the store does not answer"
                _end(f"the right to write tables could not be renewed for {GIVE_UP:g} s: {reason}", 1)

    def release(self) -> None:
        """Release all claims. Those that can't be released expire."""
        self._beat = -1
        with suppress(BaseError, OSError):
            for table, number in self.numbers.items():
                obstore.put(self.store, f"{table}/{number:020}", self._content())

    def _is_free(self, last: _Held) -> bool:
        return last.beat < 0 or last.home == self.home

    def _create(self, table: str, number: int) -> bool:
        try:
            obstore.put(self.store, f"{table}/{number:020}", self._content(), mode="create")
        except AlreadyExistsError:
            return False
        self.numbers[table] = number
        obstore.delete(self.store, [path for path in self._paths(table) if int(path.rpartition("/")[2]) < number])
        return True

    def _last(self, table: str) -> _Held | None:
        try:
            path = max(self._paths(table), default=None)
            content = None if path is None else json.loads(bytes(obstore.get(self.store, path).bytes()))
        except FileNotFoundError:  # a newer one was created, and this one deleted
            return self._last(table)
        return content and _Held(
            number=int(str(path).rpartition("/")[2]),
            holder=known(content["holder"]),
            home=content["home"],
            beat=content["beat"],
        )

    def _paths(self, table: str) -> list[str]:
        return [file["path"] for batch in obstore.list(self.store, table) for file in batch]

    def _content(self) -> bytes:
        holder = self.holder.model_dump(mode="json")
        return json.dumps({"holder": holder, "home": self.home, "beat": self._beat}).encode()


@contextmanager
def claimed(settings: Settings, tables: Sequence[str], holder: Holder, until: float) -> Iterator[None]:
    """Claim `tables` while the block runs, if they are in an object store. This process must hold their locks.

    `until` is how long to wait for maintenance, by `time.monotonic`. Raises BusyError if another process writes a
    table, which it finds out in 10 seconds, or in 2 minutes if that process is dead.
    """
    if not has_tables(settings):
        yield
        return
    store = folder(settings, f"{settings.warehouse_root}/.leases")
    claims = Claims(store=store, holder=holder, home=_identity(settings), until=until)
    stop = threading.Event()
    renewal = threading.Thread(target=claims.renew_until, args=[stop], daemon=True)
    watch = threading.Thread(target=claims.watch_until, args=[stop], daemon=True)
    renewal.start()
    watch.start()
    is_quiet = True
    try:
        claims.take(tables)
        yield
    except KeyboardInterrupt:
        is_quiet = False  # the JVM may still be writing, for a moment
        raise
    finally:
        stop.set()
        renewal.join()
        if is_quiet:
            claims.release()


def _identity(settings: Settings) -> str:
    """An id of the home, which no other home has, not even a copy of it."""
    id, at = home_id(settings), (settings.home / ID).stat()
    return f"{id}-{at.st_dev}-{at.st_ino}"


def _holder(last: _Held | None) -> Holder:
    return last.holder if last else UNKNOWN


def _end(line: str, code: int) -> NoReturn:
    """End this process and its JVM, which must not write any more."""
    for loan in LOANS:
        loan.kill()
    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            process.kill()
    CONSOLE.say(f"lakehouse: {line}")
    os._exit(code)
