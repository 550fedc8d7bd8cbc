"""What workloads draw: groups of ids, the order of messages, and which are sent twice or as a broken copy, too."""

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from pulsar_lakehouse.pulsar.produce import Message

Breakage = Callable[[bytes], bytes]
"""Makes a payload that breaks the topic's contract."""

UNREADABLE: tuple[Breakage, ...] = (
    lambda payload: payload[: len(payload) // 2],
    lambda payload: b"",
    lambda payload: b"null",
    lambda payload: b'{"event":"heartbeat","source":"elsewhere"}',
)


def groups_of(ids: Sequence[int], rates: Mapping[str, float]) -> dict[str, set[int]]:
    """The ids of each group, by name: so many as its share of all, from the front. No id is in two groups."""
    groups, begin = {}, 0
    for name, rate in rates.items():
        end = begin + round(rate * len(ids))
        groups[name], begin = set(ids[begin:end]), end
    return groups


def shuffled(messages: Sequence[Message], random: np.random.Generator) -> list[Message]:
    return [messages[index] for index in random.permutation(len(messages)).tolist()]


def with_noise(
    messages: Sequence[Message],
    random: np.random.Generator,
    *,
    duplicates: float,
    malformed: float,
    breakages: Sequence[Breakage],
) -> list[Message]:
    """The messages, then duplicates of some, then broken copies of some. The rates are shares from 0 to 1."""
    again, broken = random.random((2, len(messages)))
    noise = [messages[index] for index in np.flatnonzero(again < duplicates).tolist()]
    for index in np.flatnonzero(broken < malformed).tolist():
        key, payload, event_time, _ = messages[index]
        breakage = breakages[int(random.integers(len(breakages)))]
        noise.append(Message(key, breakage(payload or b""), event_time, broken=True))
    return [*messages, *noise]
