"""Explores all states that a model can reach, breadth first, so that a trace to a violation is as short as can be."""

from array import array
from collections.abc import Callable, Iterable, Sequence
from typing import Generic, NamedTuple, TypeVar

State = TypeVar("State")


class Step(NamedTuple, Generic[State]):
    """What may happen next."""

    does: str
    """Begins with who does it, such as `A commits bronze`."""
    after: State
    commit: tuple[str, str] | None = None
    """The table that it commits to, and the owner of the process that does so."""
    is_fault: bool = False
    """Whether it may never happen: what must be reached must be so without it."""


class Model(NamedTuple, Generic[State]):
    start: State
    steps: Callable[[State], Iterable[Step[State]]]
    always: Sequence[Callable[[State], bool]]
    """What holds in each state. The docstring says it."""
    each_commit: Sequence[Callable[[State, Step[State]], bool]]
    """What holds of each step that commits, and the state before it."""
    is_end: Callable[[State], bool]


class Explored(NamedTuple):
    states: int
    steps: int
    depth: int
    broken: str = ""
    """The name of what does not hold."""
    trace: tuple[str, ...] = ()
    """How that is reached."""


def the_end_can_be_reached() -> None:
    """From each state, the end can be reached without any further fault."""


def explore(model: Model[State]) -> Explored:
    """All states, or as many as it takes to find one that breaks what must hold."""
    found = _Found(model.start)
    for number, state in enumerate(found.states):  # which grow meanwhile
        for step in model.steps(state):
            is_new = found.add(number, step)
            if broken := _broken(model, state, step, is_new=is_new):
                return found.told(broken, (*found.trace(number), step.does))
    ends = [number for number, state in enumerate(found.states) if model.is_end(state)]
    stuck = found.first_that_leads_to_none(ends)
    return found.told() if stuck < 0 else found.told(the_end_can_be_reached.__name__, found.trace(stuck))


def _broken(model: Model[State], before: State, step: Step[State], *, is_new: bool) -> str:
    """The name of what does not hold of a step, or of the state that it leads to."""
    for holds in model.each_commit if step.commit else ():
        if not holds(before, step):
            return holds.__name__
    for always in model.always if is_new else ():
        if not always(step.after):
            return always.__name__
    return ""


class _Found(Generic[State]):
    """The states that were found: how each was reached first, and which steps lead to it that are no faults."""

    def __init__(self, start: State) -> None:
        self.states, self.numbers = [start], {start: 0}
        self.from_, self.by, self.depth, self.steps = array("l", [-1]), [""], array("l", [0]), 0
        self.last = array("l", [-1])
        """The last step that leads to each state."""
        self.sources, self.before = array("l"), array("l")
        """Where each step is from, and the step before it that leads to the same state."""

    def add(self, source: int, step: Step[State]) -> bool:
        """Add a step from a state; returns whether it leads to a new one."""
        self.steps += 1
        number = self.numbers.setdefault(step.after, len(self.states))
        if is_new := number == len(self.states):
            self.states.append(step.after)
            self.from_.append(source)
            self.by.append(step.does)
            self.depth.append(self.depth[source] + 1)
            self.last.append(-1)
        if not step.is_fault:
            self.before.append(self.last[number])
            self.last[number] = len(self.sources)
            self.sources.append(source)
        return is_new

    def trace(self, number: int) -> tuple[str, ...]:
        done = []
        while number > 0:
            done.append(self.by[number])
            number = self.from_[number]
        return tuple(reversed(done))

    def told(self, broken: str = "", trace: tuple[str, ...] = ()) -> Explored:
        return Explored(len(self.states), self.steps, max(self.depth), broken, trace)

    def first_that_leads_to_none(self, ends: Sequence[int]) -> int:
        """The first state from which no end is reached; -1 if there is none."""
        leads, waiting = bytearray(len(self.states)), list(ends)
        for each in ends:
            leads[each] = True
        while waiting:
            step = self.last[waiting.pop()]
            while step >= 0:
                if not leads[source := self.sources[step]]:
                    leads[source] = True
                    waiting.append(source)
                step = self.before[step]
        return leads.find(0)


def worlds_after(model: Model[State], events: Sequence[str], *, shows: Callable[[str], str | None]) -> set[State]:
    """Where the model can be once it has done the events in this order; nowhere if it can't do that.

    `shows` is what a recording shows of a step, which may be nothing: such steps may come at any moment.
    """
    now = _with_unseen({model.start}, model, shows)
    for event in events:
        now = {step.after for state in now for step in model.steps(state) if shows(step.does) == event}
        now = _with_unseen(now, model, shows)
    return now


def _with_unseen(states: set[State], model: Model[State], shows: Callable[[str], str | None]) -> set[State]:
    seen, waiting = set(states), list(states)
    while waiting:
        for step in model.steps(waiting.pop()):
            if shows(step.does) is None and step.after not in seen:
                seen.add(step.after)
                waiting.append(step.after)
    return seen
