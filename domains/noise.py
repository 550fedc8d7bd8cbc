"""Noise among messages: some are sent twice, and some as a broken copy, too."""

from collections.abc import Callable, Sequence

import numpy as np

from lakehouse.pulsar.produce import Message

Breakage = Callable[[bytes], bytes]
"""Makes a payload that breaks the topic's contract."""

UNREADABLE: tuple[Breakage, ...] = (
    lambda payload: payload[: len(payload) // 2],
    lambda payload: b"",
    lambda payload: b"null",
    lambda payload: b'{"event":"heartbeat","source":"elsewhere"}',
)


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
