"""What snapshots of a source mean, in plain Python: the changes between them, and the tables that follow from these.

A snapshot is its rows by key. A row is its name and, if the source says so, the time at which it changed.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
Row = tuple[str | None, datetime | None]
Snapshot = Mapping[int, Row]


class Version(NamedTuple):
    key: int
    name: str | None
    valid_from: datetime
    valid_until: datetime | None
    is_deleted: bool


def changes(snapshots: Iterable[Snapshot]) -> list[dict[int, Row | None]]:
    """By snapshot that differs from what was known: its changes by key; None for a row that is gone."""
    known: dict[int, Row] = {}
    found = []
    for snapshot in snapshots:
        changed: dict[int, Row | None] = {key: row for key, row in snapshot.items() if known.get(key) != row}
        changed |= dict.fromkeys(known.keys() - snapshot.keys())
        known = dict(snapshot)
        found += [changed] if changed else []
    return found


def history(changed: Sequence[Mapping[int, Row | None]], numbers: Sequence[int]) -> list[Version]:
    """The versions, if the snapshots with changes have these numbers: milliseconds since 1970."""
    stated: dict[int, list[tuple[datetime, Row | None]]] = {}
    for number, rows in zip(numbers, changed, strict=True):
        for key, row in rows.items():
            read_at = EPOCH + timedelta(milliseconds=number)
            stated.setdefault(key, []).append(((row and row[1]) or read_at, row))
    return in_order(version for key, rows in stated.items() for version in _versions(key, rows))


def in_order(versions: Iterable[Version]) -> list[Version]:
    return sorted(versions, key=repr)


def _versions(key: int, rows: Sequence[tuple[datetime, Row | None]]) -> Iterator[Version]:
    for place, (begins, row) in enumerate(rows):
        later = [time for time, _ in rows[place + 1 :]]
        yield Version(key, row[0] if row else None, begins, max(begins, min(later)) if later else None, row is None)


def latest(snapshot: Snapshot, changed: Iterable[Mapping[int, Row | None]]) -> list[tuple[Any, ...]]:
    """By key that was ever there: its name, and whether it is deleted."""
    keys = sorted({key for rows in changed for key in rows})
    return [(key, *((snapshot[key][0], False) if key in snapshot else (None, True))) for key in keys]
