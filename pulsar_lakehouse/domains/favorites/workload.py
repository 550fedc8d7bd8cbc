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

from pulsar_lakehouse.domains import Amount, Share
from pulsar_lakehouse.domains.draws import DAY, UNREADABLE, Breakage, Drawn, groups_of, shuffled, times
from pulsar_lakehouse.pulsar.produce import Message

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
class Workload(Drawn):
    """How much is sent, and how messy it is. Rates are shares from 0 to 1."""

    FIRST: ClassVar[str] = "Users and their favorites arrive; some are late"
    LATE: ClassVar[str] = "The late ones arrive, and changes: users move or are deleted, favorites change"

    users: Amount = 10_000
    accounts: Amount = 500
    without: Share = 0.2
    """Users without a favorite, of colors and of cheeses."""
    delayed: Share = 0.02
    """Users, and favorites, that arrive in the second phase."""
    changed: Share = 0.1
    """Users who move to another account, and favorites that change."""
    deleted: Share = 0.02
    """Users, and favorites, that are deleted by a tombstone. Half of them come back."""

    @classmethod
    def of(cls, size: int) -> Self:
        """A workload of about so many messages."""
        return cls(users=max(size // 2, 10), accounts=max(size // 40, 2))

    def first(self, topic: str) -> Iterator[Message]:
        """The first phase of a topic. Only `account_users`, `favorite_colors` and `favorite_cheeses` have messages."""
        groups = self._groups(topic)
        early = [self._message(topic, id, self.start + id) for id in sorted(groups["all"] - groups["delayed"])]
        return self._sent(early, f"first {topic}")

    def late(self, topic: str) -> Iterator[Message]:
        """The second phase of a topic."""
        return self._sent(list(self._changes(topic)), f"late {topic}")

    def endless(self, rate: float) -> tuple[str, Iterator[Message]]:
        """Favorite colors that change from now on, `rate` a second."""
        topic, now, random = "favorite_colors", int(time.time() * 1000), self.random("endless")
        users = (int(random.integers(1, self.users + 1)) for _ in count())
        changes = (
            self._message(topic, id, now + int(number * 1000 / rate), changes=number) for number, id in enumerate(users)
        )
        return topic, changes

    def _changes(self, topic: str) -> Iterator[Message]:
        random, groups = self.random(f"changes {topic}"), self._groups(topic)
        yield from (self._message(topic, id, self.start + id) for id in sorted(groups["delayed"]))
        for id in sorted(groups["changed"]):
            first, second = times(random, 2, since=self.start + DAY, span=DAY)
            yield self._message(topic, id, first, changes=1)
            yield self._message(topic, id, second, changes=2)
        for id in sorted(groups["deleted"]):
            first, second = times(random, 2, since=self.start + DAY, span=DAY)
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
            ids = self.ids(f"groups {topic}", self.users)
        if topic in FAVORITES:
            ids = ids[round(self.without * self.users) :]
        rates = {"delayed": self.delayed, "changed": self.changed, "deleted": self.deleted}
        return {"all": set(ids), **groups_of(ids, rates)}

    def _sent(self, messages: list[Message], purpose: str) -> Iterator[Message]:
        """The messages in no order, with noise."""
        random = self.random(purpose)
        yield from self.noisy(shuffled(messages, random), random, BREAKAGES)
