"""Small waves of messy messages: late, duplicate, out of order, deleted, merged and broken ones."""

import random
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from tests.hostile import DAMAGES, GOOD, written

START, SPAN = 1_767_225_600_000, 3 * 86_400_000
"""Start and length of the period of all events, in (epoch) milliseconds."""
IDS = 10**12
"""Order ids are drawn from so many numbers that a broken copy never gets the id of another order."""


class Sent(NamedTuple):
    topic: str
    key: str | None
    payload: bytes | None
    event_time: int
    """In epoch milliseconds; 0 if there is none."""
    properties: Mapping[str, str] = {}


class Waves:
    def __init__(self, draw: random.Random) -> None:
        self._draw = draw
        self._users, self._items = 20, 10
        """How many users and items there are. Orders also name some beyond that."""
        self._orders: list[Sent] = []

    def wave(self, share: float = 1.0) -> Iterator[Sent]:
        """About 40 messages, or a share of them: first sound ones, then duplicates and broken ones."""
        self._users += self._draw.randrange(3)
        sound = [self._user() for _ in range(round(9 * share) or 1)]
        sound += [self._item() for _ in range(round(5 * share) or 1)]
        sound += [self._order() for _ in range(round(20 * share) or 1)]
        self._draw.shuffle(sound)
        yield from sound
        yield from self._draw.sample(self._orders, min(len(self._orders), round(3 * share)))
        self._orders = [*self._orders, *(each for each in sound if each.topic == "orders")][-30:]
        for each in (self._user(), self._item(), self._order(), self._order()):
            if self._draw.random() < share:
                yield each._replace(payload=self._draw.choice(DAMAGES)(self._draw, each.payload or b" "))

    def _user(self) -> Sent:
        at, id = self._time(), self._draw.randrange(self._users)
        fields: dict[str, Any] = dict(GOOD["users"]) | {"id": id, "firstName": f"Ada {at}", "createdAt": START}
        kind = self._draw.random()
        if kind < 0.15:
            fields |= {"mergedAt": at, "parentUserId": self._draw.randrange(self._users)}
        elif kind < 0.25:
            fields["deletedAt"] = at
        payload = None if 0.25 <= kind < 0.3 else written(fields)
        return Sent("users", str(id), payload, at)

    def _item(self) -> Sent:
        at, id = self._time(), self._draw.randrange(self._items)
        if self._draw.random() < 0.4:
            at = START - 86_400_000  # so that most items exist before any order
        fields = dict(GOOD["items"]) | {"id": id, "price": self._draw.randrange(1, 10_000) / 100, "createdAt": START}
        return Sent("items", str(id), None if self._draw.random() < 0.05 else written(fields), at)

    def _order(self) -> Sent:
        at, id = self._time(), self._draw.randrange(IDS)
        fields = dict(GOOD["orders"]) | {
            "invoiceId": id // 3,
            "lineItemId": id,
            "userId": self._draw.randrange(self._users + 3),
            "itemId": self._draw.randrange(self._items + 1),
            "price": self._draw.randrange(1, 10_000) / 100,
            "createdAt": at,
            "paidAt": self._draw.choice((None, at + 60_000)),
        }
        return Sent("orders", str(id), written(fields), at)

    def _time(self) -> int:
        return START + self._draw.randrange(SPAN)
