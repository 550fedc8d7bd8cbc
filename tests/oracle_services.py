"""What the answers of a service mean for facts, in plain Python.

A service is asked once for each key that a fact lacks. A fact takes the newest answer, if that holds at its time.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple


class Fact(NamedTuple):
    id: int
    address: str | None
    """The fact waits for its place."""
    target: str | None
    """The fact goes to gold without this place, and is corrected when it comes."""
    at: datetime


class Answer(NamedTuple):
    address: str
    at: datetime
    city: str | None
    is_malformed: bool


class Tables(NamedTuple):
    gold: Mapping[int, tuple[str | None, ...]]
    """By fact: the address and the city of its place, and the same of its target."""
    waiting: Mapping[int, str]
    """By fact: why it waits."""
    lacking: frozenset[str]
    """The addresses that the service has to be asked for."""


NONE = (None, None)


def tables(facts: Iterable[Fact], answers: Iterable[Answer], *, cache: timedelta | None = None) -> Tables:
    """The tables once all answers are merged, if facts came before the first answer that holds at their time."""
    gold, waiting, lacking = dict[int, tuple[str | None, ...]](), dict[int, str](), set[str]()
    usable = [each for each in answers if not each.is_malformed]
    for fact in facts:
        place, target = (_state(usable, address, fact.at, cache) for address in (fact.address, fact.target))
        if place is None and fact.address:
            is_old = fact.address in {each.address for each in usable}
            waiting[fact.id] = f"place {'deleted' if is_old else 'missing'}"
            lacking.add(fact.address)
            continue
        gold[fact.id] = (*(place or NONE), *(target or NONE))
        lacking |= {fact.target} if fact.target and target is None else set()
    return Tables(gold, waiting, frozenset(lacking))


def _state(
    answers: Sequence[Answer], address: str | None, at: datetime, cache: timedelta | None
) -> tuple[str, str | None] | None:
    holding = (each for each in answers if each.address == address and (cache is None or at < each.at + cache))
    first = min(holding, key=lambda each: each.at, default=None)
    return first and (first.address, first.city)


def asked_in_vain(calls: Iterable[tuple[str, datetime]], kept: Iterable[Answer]) -> list[tuple[str, datetime]]:
    """The calls for an address whose answer was kept by then, if answers hold forever."""
    first: dict[str, datetime] = {}
    for each in sorted(kept, key=lambda each: each.at):
        first.setdefault(each.address, each.at)
    return [(address, at) for address, at in calls if address in first and at > first[address]]
