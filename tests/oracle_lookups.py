"""What facts are joined with, and what they wait for, in plain Python: also through rows that earlier lookups find."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

Row = dict[str, Any]

Versions = Mapping[tuple[str, str | None], Sequence[Row]]
"""The versions of each key, by entity and the key's text, in order."""

REASONS = ("reason", "missing")


@dataclass(frozen=True, kw_only=True)
class Join:
    """A lookup, as `pulsar_lakehouse.gold.enrichment.declaration` declares it."""

    name: str
    entity: str
    on: tuple[str, ...]
    keys: tuple[str, ...] = ("id",)
    """The columns of the entity's key."""
    is_as_of: bool = False
    required: bool = True
    follows_merges: bool = False
    max_merges: int = 100

    @property
    def through(self) -> list[str]:
        """The earlier lookups whose rows have columns of the key."""
        return list(dict.fromkeys(path.split(".")[0] for path in self.on if "." in path))

    @property
    def own(self) -> list[str]:
        """The columns of the key that are the fact's own."""
        return [path for path in self.on if "." not in path]

    def key_in(self, row: Row | None) -> tuple[Any, ...] | None:
        return tuple(row[name] for name in self.keys) if row else None

    def state(self, key: str | None, when: datetime, versions: Versions) -> Row | None:
        """The state that a fact of this time is joined with, even if it is deleted."""
        known = reversed(versions.get((self.entity, key), []))
        return next((row for row in known if not self.is_as_of or row["sequence"]["event_time"] <= when), None)

    def survivor(self, key: tuple[Any, ...], versions: Versions) -> tuple[tuple[Any, ...], list[Any], str | None]:
        """The survivor of a key, the merged keys on the way there, and the reason why there is no survivor, or None.

        In a circle, the way ends at the first key that comes up twice. If it is too long, it ends at a merged key.
        """
        merged: list[Any] = []
        while self.follows_merges and (into := merged_into(versions.get((self.entity, key_of(key))))) is not None:
            if key[0] in merged:
                return key, merged, "merged in a circle"
            if len(merged) == self.max_merges:
                return key, merged, f"merged through more than {self.max_merges} keys"
            merged.append(key[0])
            key = (into,)
        return key, merged, None


@dataclass(frozen=True, kw_only=True)
class Match:
    """An interval join, as `pulsar_lakehouse.gold.enrichment.match` declares it."""

    name: str
    entity: str
    on: str
    by: str
    time: str
    low: timedelta
    high: timedelta
    wait: timedelta
    is_first: bool = True
    required: bool = True

    def near(self, fact: Row, versions: Versions) -> list[Row]:
        """The latest rows with the fact's value and a time in its interval, also deleted ones, in order."""
        latest = (of_key[-1] for (entity, _), of_key in versions.items() if entity == self.entity and of_key)
        same = (row for row in latest if row[self.time] is not None and row[self.by] == fact[self.on] is not None)
        near = (row for row in same if self.low <= row[self.time] - fact["created_at"] <= self.high)
        return sorted(near, key=lambda row: (row[self.time], row["id"]))

    def found(self, fact: Row, versions: Versions, now: datetime) -> tuple[Any, Row | None]:
        """The partner or partners of a fact, and what it waits for, in the form of `missing`, or None."""
        partners = [row for row in self.near(fact, versions) if not _was_deleted(row)]
        if partners or fact[self.on] is None:
            return (partners[0] if self.is_first else partners) if partners else None, None
        is_over = fact["created_at"] + self.wait < now
        if is_over and not self.required:
            return None, None
        key = text_of([fact[self.on]])
        return None, missing(f"match {self.name}", key, "expired" if is_over else "missing")


def _was_deleted(row: Row) -> bool:
    """Whether a row was deleted when it was last changed."""
    return row["deleted_at"] is not None and row["deleted_at"] <= row["sequence"]["event_time"]


JOINS = (
    Join(name="user", entity="users", on=("user_id",), follows_merges=True),
    Join(name="item", entity="items", on=("item_id",), is_as_of=True),
)
"""The lookups of the shop."""


def found(fact: Row, joins: Sequence[Join], versions: Versions, held: Row | None = None) -> tuple[Row, dict[str, Row]]:
    """What the lookups add to a fact, and the states that can't be used, by lookup, in the form of `missing`.

    `held` is the fact's row in gold. If it has the same key, a row with keys of later lookups is taken from there.
    """
    added: Row = {}
    lacks: dict[str, Row] = {}
    ways: dict[str, list[Row]] = {}
    leading = {name for join in joins for name in join.through}
    for join in joins:
        added |= dict.fromkeys(names_of(join))
        if any(added[name] is None for name in join.through) or any(fact[name] is None for name in join.own):
            continue  # there is no key
        key, merged, no_way = join.survivor(tuple(_value(fact | added, path) for path in join.on), versions)
        row = join.state(key_of(key), fact["created_at"], versions)
        via = [each for earlier in _earlier(join, joins) for each in ways[earlier]]
        ways[join.name] = [{"entity": join.entity, "key": text} for text in (*map(str, merged), key_of(key))]
        if join.follows_merges:
            added[f"{join.name}_merged"] = merged or None
        if reason := no_way or unusable(row, fact):
            lacks[join.name] = missing(join.entity, key_of(key), reason, merged, via)
            continue
        kept = held[join.name] if held and join.name in leading and not join.is_as_of else None
        added[join.name] = kept if join.key_in(kept) == key else row
    return added, lacks


def missing(entity: str, key: str | None, reason: str, merged: Sequence[Any] = (), via: Sequence[Row] = ()) -> Row:
    """A state that can't be used."""
    names = list(map(str, merged)) or None
    return {"entity": entity, "key": key, "reason": reason, "merged": names, "via": list(via) or None}


def names_of(join: Join) -> tuple[str, ...]:
    """The columns that a lookup adds to a fact."""
    return (join.name, f"{join.name}_merged") if join.follows_merges else (join.name,)


def awaited(fact: Row) -> Iterator[tuple[str, str | None]]:
    """The entity and key of each state that a fact waits for, or that led there."""
    for state in fact["missing"]:
        yield from ((state["entity"], key) for key in (state["key"], *(state["merged"] or ())))
        yield from ((each["entity"], each["key"]) for each in state["via"] or ())


def waits(lacks: Mapping[str, Row]) -> Row:
    reason = ", ".join(f"{name} {state['reason']}" for name, state in lacks.items())
    return dict(zip(REASONS, (reason, list(lacks.values())), strict=True))


def unusable(state: Row | None, fact: Row) -> str | None:
    if state is None:
        return "missing"
    is_gone = state["deleted_at"] is not None and state["deleted_at"] <= fact["created_at"]
    return "deleted" if is_gone else None


def merged_into(versions: Sequence[Row] | None) -> int | None:
    """The user into which the latest of these versions was merged."""
    return versions[-1]["parent_user_id"] if versions and versions[-1]["merged_at"] else None


def key_of(values: Sequence[Any]) -> str | None:
    """The text of the key with these values; None if one of them is."""
    return None if None in values else text_of(values)


def text_of(values: Sequence[Any]) -> str:
    """The message key of a key with these values."""
    if len(values) == 1:
        return str(values[0])
    return json.dumps(values, ensure_ascii=False, separators=(",", ":"))


def _value(rows: Row, path: str) -> Any:
    name, _, column = path.partition(".")
    return rows[name][column] if column else rows[name]


def _earlier(join: Join, joins: Sequence[Join]) -> list[str]:
    """The names of the lookups that a lookup goes through, each after those that it goes through itself."""
    known = {each.name: each for each in joins}
    return list(dict.fromkeys(each for name in join.through for each in (*_earlier(known[name], joins), name)))
