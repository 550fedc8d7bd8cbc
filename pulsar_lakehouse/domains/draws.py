"""What all workloads draw: groups of ids, times, the order of messages, and which are sent twice or broken, too."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np

from pulsar_lakehouse.domains import Expected, Share
from pulsar_lakehouse.pulsar.produce import NO_SCHEMA, Message

CHUNK = 10_000
"""Messages that are made together. Their duplicates and broken copies follow them."""
DAY = 86_400_000

Breakage = Callable[[bytes], bytes]
"""Makes a payload that breaks the topic's contract."""

UNREADABLE: tuple[Breakage, ...] = (
    lambda payload: payload[: len(payload) // 2],
    lambda payload: b" ",
    lambda payload: b"null",
    lambda payload: b'{"event":"heartbeat","source":"elsewhere"}',
)


@dataclass(frozen=True, kw_only=True)
class Drawn:
    """How each workload is drawn. Rates are shares from 0 to 1."""

    seed: int = 7
    start: int = 1_767_225_600_000
    """When the first phase begins, in epoch milliseconds. The default is 2026-01-01T00:00Z."""
    duplicates: Share = 0.01
    """Messages that are sent twice."""
    malformed: Share = 0.002
    """Messages that are also sent as a broken copy."""

    def random(self, purpose: str, *chunk: int) -> np.random.Generator:
        return np.random.default_rng([self.seed, *chunk, *purpose.encode()])

    def ids(self, purpose: str, size: int, *chunk: int) -> list[int]:
        """The ids from 1 to `size` in a random order."""
        ids: list[int] = (self.random(purpose, *chunk).permutation(size) + 1).tolist()
        return ids

    def opened(self, id: int) -> int:
        """A time in the year that ends one day before `start`."""
        return self.start - DAY - id * 7_919_000 % (365 * DAY)

    def expected(self) -> Iterator[Expected]:
        """Nothing: only the tests compute what follows from the messages."""
        return iter(())

    def noisy(
        self, messages: Sequence[Message], random: np.random.Generator, breakages: Sequence[Breakage]
    ) -> list[Message]:
        """The messages, then duplicates of some, then broken copies of some."""
        again, broken = random.random((2, len(messages)))
        noise = [messages[index] for index in np.flatnonzero(again < self.duplicates).tolist()]
        for index in np.flatnonzero(broken < self.malformed).tolist():
            message = messages[index]
            breakage = breakages[int(random.integers(len(breakages)))]
            noise.append(message._replace(payload=breakage(message.payload or b""), schema=NO_SCHEMA))
        return [*messages, *noise]


def groups_of(ids: Sequence[int], rates: Mapping[str, float]) -> dict[str, set[int]]:
    """The ids of each group, by name: so many as its share of all, from the front. No id is in two groups."""
    groups, begin = {}, 0
    for name, rate in rates.items():
        end = begin + round(rate * len(ids))
        groups[name], begin = set(ids[begin:end]), end
    return groups


def shuffled(messages: Sequence[Message], random: np.random.Generator) -> list[Message]:
    return [messages[index] for index in random.permutation(len(messages)).tolist()]


def times(random: np.random.Generator, size: int, *, since: int, span: int) -> list[int]:
    """Moments in the `span` from `since` on, in order."""
    return sorted(since + offset for offset in random.integers(0, span, size).tolist())


def chunks(messages: Iterable[Message]) -> Iterator[list[Message]]:
    left = iter(messages)
    while taken := list(islice(left, CHUNK)):
        yield taken
