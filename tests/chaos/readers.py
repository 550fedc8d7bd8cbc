"""Readers that read gold and quarantine all the time while faults strike, and whether what they saw was so.

What a reader sees of a table must be one of its versions, and never an older one than it saw before. An order that was
placed stays placed: at no moment, and in nothing that is read as of one moment, is it in none of the tables.
"""

import threading
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any

from deltalake import DeltaTable
from impala.dbapi import connect

from pulsar_lakehouse.inspection.query import at_one_moment, query
from pulsar_lakehouse.settings import Settings
from pulsar_lakehouse.tables.stored import is_stored, stored_table
from tests.oracle import Position

TABLES = {
    "gold.enriched_orders": ("user", "first_name"),
    "quarantine.waiting_orders": ("attempts",),
    "quarantine.duplicate_orders": ("duplicate_of", "entry_id"),
    "quarantine.discarded_orders": ("attempts",),
}
"""Where an order can be, and a value, by its path, that shows which version of the order it is."""
GOLD = next(iter(TABLES))

Row = tuple[Position, Any]
Rows = frozenset[tuple[Row, int]]
"""The rows of a table, and how often it has each."""
Read = Callable[[], Mapping[str, Rows]]


class NotSoError(Exception):
    """A reader saw what was never so."""


@dataclass(frozen=True, kw_only=True)
class State:
    version: int
    at: int
    """When it was committed, in epoch milliseconds."""
    rows: Rows


@dataclass
class Reader:
    name: str
    read: Read
    pause: float
    """Seconds between two readings."""
    is_of_a_moment: bool = False
    """Whether it reads all tables as of one moment."""
    seen: list[Mapping[str, Rows]] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    readings: int = 0

    def read_until(self, stop: threading.Event) -> None:
        while not stop.wait(self.pause):
            try:
                self.seen.append(self.read())
                self.readings += 1
            except Exception:  # whatever it is, the reader got no answer
                self.failures.append(traceback.format_exc())


class Readers:
    """Reads from `start` to `stop`. `judge` compares all that was seen since it was called before."""

    def __init__(self, settings: Settings, readers: Sequence[Reader]) -> None:
        self._settings, self.readers = settings, readers
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=each.read_until, args=[self._stop], daemon=True) for each in readers]
        self._last: dict[str, tuple[str, int]] = {}
        """The id of each table, and the version that it had when it was judged."""

    def start(self) -> None:
        self.forget()
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        self._stop.set()
        for thread in self._threads:
            if thread.is_alive():
                thread.join(60)

    def forget(self) -> None:
        """Begin anew with the tables as they are: a fault has damaged them, or taken away their history."""
        for each in self.readers:
            _taken(each.seen), _taken(each.failures)
        self._last = {name: (str(table.metadata().id), table.version()) for name, table in self._now().items()}

    def judge(self, *, gone: Iterable[Position] = ()) -> None:
        """Raises NotSoError if a reader saw what was never so. The orders that are `gone` were erased on purpose."""
        sights = [(each, _taken(each.seen), _taken(each.failures)) for each in self.readers]
        states = {name: self._states(name, table) for name, table in self._now().items()}
        _refuse_unplaced(states, set(gone))
        for reader, seen, failures in sights:
            if failures:
                raise NotSoError(f"{reader.name} could not read {len(failures)} times: {failures[0]}")
            for name in TABLES:
                _refuse_unlike(reader, name, [each[name] for each in seen if name in each], states.get(name, []))
            if reader.is_of_a_moment:
                _refuse_lost(reader, seen, set(gone))

    def _now(self) -> dict[str, DeltaTable]:
        return at_one_moment({name: stored_table(self._settings, name) for name in _stored(self._settings)})

    def _states(self, name: str, table: DeltaTable) -> list[State]:
        """All versions since the one that was judged last."""
        id, last = self._last.get(name, ("", 0))
        if id not in ("", str(table.metadata().id)) or table.version() < last:
            raise NotSoError(f"{name} was made again, or has gone back from version {last} to {table.version()}")
        self._last[name] = str(table.metadata().id), table.version()
        times = {each["version"]: each["timestamp"] for each in table.history(table.version() - last + 1)}
        return [
            State(version=version, at=times[version], rows=_rows_of(self._settings, name, version))
            for version in range(last, table.version() + 1)
        ]


def by_delta_rs(settings: Settings) -> Read:
    """Each table alone."""
    return lambda: {name: _rows_of(settings, name) for name in _stored(settings)}


def by_query(settings: Settings) -> Read:
    """All tables in one statement of `lakehouse sql`."""

    def read() -> dict[str, Rows]:
        names = _stored(settings)
        found = query(settings, " UNION ALL ".join(_select(name, '"') for name in names)).fetchall()
        return {name: _rows((Position(*at), what) for of, *at, what in found if of == name) for name in names}

    return read


def by_endpoint(settings: Settings, port: int, user: str, password: str) -> Read:
    """Each table alone, by a statement of the SQL endpoint, which Spark runs."""

    def read() -> dict[str, Rows]:
        names = _stored(settings)
        login = {"auth_mechanism": "PLAIN", "user": user, "password": password}
        with closing(connect(host="127.0.0.1", port=port, **login)) as connection, closing(connection.cursor()) as at:

            def rows_of(name: str) -> Rows:
                at.execute(_select(name, "`"))
                return _rows((Position(*place), what) for _, *place, what in at.fetchall())

            return {name: rows_of(name) for name in names}

    return read


def _stored(settings: Settings) -> list[str]:
    return [name for name in TABLES if is_stored(settings, name)]


def _select(name: str, quote: str) -> str:
    what = ".".join(f"{quote}{part}{quote}" for part in TABLES[name])
    place = ", ".join(f"position.{part}" for part in Position._fields)
    return f"SELECT '{name}' AS name, {place}, CAST({what} AS STRING) AS what FROM {name}"


def _rows_of(settings: Settings, name: str, version: int | None = None) -> Rows:
    first, *rest = TABLES[name]
    found = stored_table(settings, name, version).to_pyarrow_table(columns=["position", first]).to_pylist()

    def what(row: Mapping[str, Any]) -> str | None:
        value = row[first]
        for part in rest:
            value = value and value[part]
        return None if value is None else str(value)

    return _rows((Position(*(row["position"][part] for part in Position._fields)), what(row)) for row in found)


def _rows(rows: Iterable[Row]) -> Rows:
    return frozenset(Counter(rows).items())


def _positions(rows: Iterable[Rows]) -> set[Position]:
    return {position for each in rows for (position, _), _ in each}


def _taken(noted: list[Any]) -> list[Any]:
    """All that was noted so far, which is removed. Its reader may add to it meanwhile."""
    taken = list(noted)
    del noted[: len(taken)]
    return taken


def _refuse_unlike(reader: Reader, name: str, seen: Sequence[Rows], states: Sequence[State]) -> None:
    """Raises NotSoError if the reader saw something that is no version, or an older one than before."""
    left = list(states)
    for rows in seen:
        while left and left[0].rows != rows:
            left.pop(0)
        if not left:
            was = [state.version for state in states if state.rows == rows] or "no version"
            raise NotSoError(f"{reader.name} saw {name} as in {was} after it had seen a later one")


def _refuse_unplaced(states: Mapping[str, Sequence[State]], gone: set[Position]) -> None:
    """Raises NotSoError if there was a moment in which an order that had been placed was in none of the tables."""
    now: dict[str, set[Position]] = {}
    placed: set[Position] = set()
    for at, name, state in sorted(
        ((state.at, name, state) for name, of in states.items() for state in of), key=lambda each: each[:2]
    ):
        now[name] = _positions([state.rows])
        if len(now) == len(states):
            held = set.union(*now.values())
            if lost := placed - held - gone:
                raise NotSoError(
                    f"{len(lost)} orders were in no table after {name} {state.version} ({at}): {min(lost)}"
                )
            placed = held


def _refuse_lost(reader: Reader, seen: Sequence[Mapping[str, Rows]], gone: set[Position]) -> None:
    """Raises NotSoError if the reader saw an order in no table that it had seen in one before."""
    before: set[Position] = set()
    for tables in seen:
        if lost := before - (now := _positions(tables.values())) - gone:
            raise NotSoError(f"{reader.name} saw {len(lost)} orders in no table any more: {min(lost)}")
        before = now
