"""Users of accounts, with favorite colors and cheeses. The same seed gives the same messages.

There are two phases. `first` has most users and favorites. `late` has those that arrive late, and changes, shuffled:
users who move to another account or are deleted, and favorites that change or are taken back. In both phases, some
messages are sent twice, or broken. A broken message is an extra copy of a good one.
"""

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from typing import Any, ClassVar, Self

import numpy as np

from pulsar_lakehouse.domains import Amount, Share
from pulsar_lakehouse.domains.draws import UNREADABLE, Breakage, groups_of, shuffled, with_noise
from pulsar_lakehouse.pulsar.produce import Message

DAY = 86_400_000
NAMES = ("Ada", "Alan", "Barbara", "Edsger", "Grace", "John", "Katherine", "Ken", "Margaret", "Zoë")
FAVORITES = {
    "favorite_colors": ("color", ("red", "green", "blue", "orange", "türkis")),
    "favorite_cheeses": ("cheese", ("brie", "cheddar", "gouda", "manchego", "feta", "gruyère")),
}
"""By topic, the field with the favorite, and what it can be."""

BREAKAGES: tuple[Breakage, ...] = (
    lambda payload: payload.replace(b'"userId": ', b'"userId": "nobody", "was": '),
    *UNREADABLE,
)


@dataclass(frozen=True, kw_only=True)
class Workload:
    """How much is sent, and how messy it is. Rates are shares from 0 to 1."""

    FIRST: ClassVar[str] = "Users and their favorites arrive; some are late"
    LATE: ClassVar[str] = "The late ones arrive, and changes: users move or are deleted, favorites change"

    seed: int = 7
    users: Amount = 10_000
    accounts: Amount = 500
    start: int = 1_767_225_600_000
    """When the first phase begins, in epoch milliseconds. The default is 2026-01-01T00:00Z."""
    without: Share = 0.2
    """Users without a favorite, of colors and of cheeses."""
    delayed: Share = 0.02
    """Users, and favorites, that arrive in the second phase."""
    changed: Share = 0.1
    """Users who move to another account, and favorites that change."""
    deleted: Share = 0.02
    """Users, and favorites, that are deleted by a tombstone. Half of them come back."""
    duplicates: Share = 0.01
    """Messages that are sent twice."""
    malformed: Share = 0.002
    """Messages that are also sent as a broken copy."""

    @classmethod
    def of(cls, size: int) -> Self:
        """A workload of about so many messages."""
        return cls(users=max(size // 2, 10), accounts=max(size // 40, 2))

    def first(self, topic: str) -> Iterator[Message]:
        """The first phase of a topic. Only `account_users`, `favorite_colors` and `favorite_cheeses` have messages."""
        groups = self._groups(topic)
        early = (id for id in sorted(groups["all"] - groups["delayed"]))
        return self._sent((self._message(topic, id, self.start + id) for id in early), f"first {topic}")

    def late(self, topic: str) -> Iterator[Message]:
        """The second phase of a topic."""
        return self._sent(self._changes(topic), f"late {topic}")

    def endless(self, rate: float) -> tuple[str, Iterator[Message]]:
        """Favorite colors that change from now on, `rate` a second."""
        now, random = int(time.time() * 1000), self._random("endless")
        changes = (
            self._message(
                "favorite_colors",
                int(random.integers(1, self.users + 1)),
                now + int(number * 1000 / rate),
                changes=number,
            )
            for number in count()
        )
        return "favorite_colors", changes

    def _changes(self, topic: str) -> Iterator[Message]:
        random, groups = self._random(f"changes {topic}"), self._groups(topic)
        yield from (self._message(topic, id, self.start + id) for id in sorted(groups["delayed"]))
        for id in sorted(groups["changed"]):
            first, second = self._times(random)
            yield self._message(topic, id, first, changes=1)
            yield self._message(topic, id, second, changes=2)
        for id in sorted(groups["deleted"]):
            first, second = self._times(random)
            yield Message(str(id), None, first)
            if id % 2:
                yield self._message(topic, id, second)

    def _message(self, topic: str, id: int, at: int, *, changes: int = 0) -> Message:
        payload: dict[str, Any] = {"userId": id}
        if topic in FAVORITES:
            field, choices = FAVORITES[topic]
            payload[field] = choices[(id + changes) % len(choices)]
        else:
            payload |= {"accountId": (id + changes) % self.accounts + 1, "name": NAMES[id % len(NAMES)]}
        return Message(str(id), json.dumps(payload).encode(), at)

    def _groups(self, topic: str) -> dict[str, set[int]]:
        """The users with messages in a topic, and those among them whose messages are delayed, changed or deleted."""
        ids: list[int] = []
        if topic in FAVORITES or topic == "account_users":
            ids = (self._random(f"groups {topic}").permutation(self.users) + 1).tolist()
        if topic in FAVORITES:
            ids = ids[round(self.without * self.users) :]
        rates = {"delayed": self.delayed, "changed": self.changed, "deleted": self.deleted}
        return {"all": set(ids), **groups_of(ids, rates)}

    def _times(self, random: np.random.Generator) -> list[int]:
        """Two moments in the day after the first phase, in order."""
        return sorted(self.start + DAY + offset for offset in random.integers(0, DAY, 2).tolist())

    def _random(self, purpose: str) -> np.random.Generator:
        return np.random.default_rng([self.seed, *purpose.encode()])

    def _sent(self, messages: Iterator[Message], purpose: str) -> Iterator[Message]:
        """The messages in no order, with noise."""
        random = self._random(purpose)
        rates = {"duplicates": self.duplicates, "malformed": self.malformed}
        yield from with_noise(shuffled(list(messages), random), random, **rates, breakages=BREAKAGES)
