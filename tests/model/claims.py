"""A model of claims: the right to write a table in an object store, among homes whose clocks run alike.

Time goes in steps of half a minute. A process can be suspended at any moment, and the store can be slow, or not answer.
"""

from collections.abc import Iterator
from typing import NamedTuple

from tests.model.explorer import Model, Step

GIVE_UP, EXPIRY, TIMEOUT = 3, 4, 2
"""`leases.claims.GIVE_UP` and `EXPIRY`, and `storage.TIMEOUT`, after which a request has failed."""


class Rules(NamedTuple):
    """What `leases.claims` does. A planted bug breaks one of these."""

    gives_up_before_expiry: bool = True
    """GIVE_UP is less than EXPIRY."""
    created_if_absent: bool = True
    """`Claims._create` puts a number only if it is not there."""
    renewed_when_asked: bool = True
    """`Claims.renew` counts from when it began to write, not from when the store has answered."""
    higher_number_ends: bool = True
    """`Claims.renew` ends the process if there is a higher number."""
    released_when_quiet: bool = True
    """`claimed` releases nothing after an interrupt, as Spark may write for a moment."""


class Process(NamedTuple):
    at: str = "off"
    number: int = -1
    """Of its claim, or of the one that it watches."""
    time: int = 0
    """How long it has watched that claim; or since when it has its own for sure."""
    asked: int = -1
    """How long ago it has asked to renew it; -1 if it does not ask."""
    is_stored: bool = False
    """Whether that has been done."""
    is_suspended: bool = False
    was_late: bool = False
    """Whether it was suspended for so long that others may have its claim, and has not looked since."""


class Store(NamedTuple):
    number: int = -1
    is_free: bool = True
    a: Process = Process()
    b: Process = Process()


def steps(rules: Rules, store: Store, most: int) -> Iterator[Step[Store]]:
    """All that can happen next, until so many claims were made."""
    must_end = [p for p in (store.a, store.b) if _has_given_up(rules, p) and not p.is_suspended]
    if not must_end and any(p.at != "off" for p in (store.a, store.b)):
        yield Step("half a minute passes", store._replace(a=_older(store.a), b=_older(store.b)))
    for name, own in (("a", store.a), ("b", store.b)):
        for does, changed, now in _steps(rules, store, own, most):
            commit = ("gold", name) if does == "commits" else None
            is_fault = does in ("is suspended", "is killed", "is interrupted")
            after = now._replace(a=changed) if name == "a" else now._replace(b=changed)
            yield Step(f"{name} {does}", after, commit, is_fault)


def _steps(rules: Rules, store: Store, own: Process, most: int) -> Iterator[tuple[str, Process, Store]]:
    if own.is_suspended:
        yield "goes on", own._replace(is_suspended=False, was_late=own.was_late or own.time > GIVE_UP), store
        return
    if own.at != "off":
        yield "is killed", Process(), store
        yield "is suspended", own._replace(is_suspended=True), store
    match own.at:
        case "off" if store.number < most:
            yield "looks", Process("watches", store.number), store
        case "watches":
            yield from _watches(rules, store, own)
        case "creates":
            is_there = own.number <= store.number
            if is_there and rules.created_if_absent:
                yield "is too late", Process(), store
            else:
                yield "claims", Process("holds", own.number), store._replace(number=own.number, is_free=False)
        case "holds":
            yield "commits", own, store
            yield from _holds(rules, store, own)
        case "dies":
            yield "commits", own, store
            yield "ends", Process(), store


def _watches(rules: Rules, store: Store, own: Process) -> Iterator[tuple[str, Process, Store]]:
    """`Claims._take`: `last == first` until it expires, by the clock of who waits."""
    expiry = EXPIRY if rules.gives_up_before_expiry else GIVE_UP - 1
    if own.number != store.number:
        yield "is told who writes", Process(), store
    elif store.is_free or own.time > expiry:
        yield "finds it free", Process("creates", own.number + 1), store


def _holds(rules: Rules, store: Store, own: Process) -> Iterator[tuple[str, Process, Store]]:
    """`Claims.renew`, `renew_until` and `watch_until`."""
    if _has_given_up(rules, own):
        yield "gives up", Process(), store
    yield "is interrupted", own._replace(at="dies"), store if rules.released_when_quiet else _released(store, own)
    yield "releases its claim", Process(), _released(store, own)
    if own.asked < 0:
        if own.number != store.number and rules.higher_number_ends:
            yield "has lost its claim", Process(), store
        else:
            yield "asks to renew", own._replace(asked=0, was_late=own.was_late and own.number == store.number), store
    elif not own.is_stored:
        yield "has renewed it in the store", own._replace(is_stored=True), _renewed(store, own)
    elif own.asked <= TIMEOUT:
        time = own.asked if rules.renewed_when_asked else 0
        yield "gets the answer", own._replace(time=time, asked=-1, is_stored=False), store
    if own.asked > TIMEOUT:
        yield "gets no answer", own._replace(asked=-1, is_stored=False), store


def _renewed(store: Store, own: Process) -> Store:
    """Who watches sees the change, and is told who writes: here it begins to watch anew, which takes longer."""
    if own.number != store.number:
        return store
    a, b = (p._replace(time=0) if p.at == "watches" else p for p in (store.a, store.b))
    return store._replace(a=a, b=b)


def _released(store: Store, own: Process) -> Store:
    return store._replace(is_free=store.is_free or own.number == store.number)


def _older(own: Process) -> Process:
    if own.at in ("watches", "holds", "dies") and own.time <= EXPIRY:
        own = own._replace(time=own.time + 1)
    return own._replace(asked=min(own.asked + 1, TIMEOUT + 1)) if own.asked >= 0 else own


def _has_given_up(rules: Rules, own: Process) -> bool:
    return own.at == "dies" or (own.at == "holds" and own.time > GIVE_UP)


def only_who_was_suspended_commits_after_a_successor(before: Store, step: Step[Store]) -> bool:
    """Once another home has claimed the table, only a process that was suspended can still commit, for a moment."""
    own = before.a if step.commit == ("gold", "a") else before.b
    return (own.number == before.number and not (own.at == "dies" and before.is_free)) or own.was_late


def a_number_has_one_holder(store: Store) -> bool:
    """No two processes hold the same claim."""
    return not (store.a.at == store.b.at == "holds" and store.a.number == store.b.number)


def model_of_claims(rules: Rules = Rules(), most: int = 1) -> Model[Store]:  # noqa: B008 (it can't be changed)
    return Model(
        Store(),
        lambda store: steps(rules, store, most),
        [a_number_has_one_holder],
        [only_who_was_suspended_commits_after_a_successor],
        lambda store: store.a.at == store.b.at == "off",
    )
