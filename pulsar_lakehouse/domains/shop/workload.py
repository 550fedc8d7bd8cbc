"""A synthetic, messy workload of users, items and orders. The same seed gives the same messages.

The items are those in `items.csv`. There are two phases. `first` has the items, most users and all orders. `late` has
the users that arrive after their orders, and changes to users and items, shuffled. In both phases, some messages are
late, sent twice, or broken. A broken message is an extra copy of a good one.
"""

import csv
import json
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import count
from pathlib import Path
from typing import Annotated, ClassVar, NamedTuple, Self

import numpy as np
from pydantic import Field

from pulsar_lakehouse.domains import Amount, Share
from pulsar_lakehouse.domains.draws import CHUNK, DAY, UNREADABLE, Breakage, Drawn, chunks, groups_of, shuffled, times
from pulsar_lakehouse.pulsar.produce import Message

ITEMS_FILE = Path(__file__).with_name("items.csv")
HOUR = 3_600_000
UNKNOWN_ITEM = 1_000_000_000
"""The lowest id of items that never arrive. The ids of users that never arrive begin at `Workload.users` + 1."""

FIRST_NAMES = ("Ada", "Alan", "Barbara", "Edsger", "Grace", "John", "Katherine", "Ken", "Margaret", "Zoë")
LAST_NAMES = (
    *("Dijkstra", "Hamilton", "Hopper", "Johnson", "Liskov", "Lovelace", "McCarthy", "Thompson", "Turing", "Ōno"),
)

USER = (
    b'{"id":%d,"firstName":"%b","lastName":"%b","emailAddress":"%b","createdAt":%d,'
    b'"deletedAt":%d,"mergedAt":%d,"parentUserId":%d}'
)
ITEM = b'{"id":%d,"createdAt":%d,"adjective":%b,"category":%b,"modifier":%b,"name":%b,"price":%.2f}'
ORDER = b'{"invoiceId":%d,"lineItemId":%d,"userId":%d,%b,"createdAt":%d,"paidAt":%d}'
ORDER_ITEM = b'"itemId":%d,"itemName":%b,"itemCategory":%b,"price":%.2f'

BREAKAGES: tuple[Breakage, ...] = (
    lambda payload: payload.replace(b'"createdAt":', b'"createdAt":"yesterday","was":'),
    lambda payload: payload.replace(b'"createdAt":', b'"createdAt":0.5,"was":'),
    *UNREADABLE,
)


class Item(NamedTuple):
    id: int
    created_at: int
    adjective: bytes
    category: bytes
    modifier: bytes
    name: bytes
    price: float

    def message(self, price: float, at: int) -> Message:
        return Message(str(self.id), ITEM % (*self[:-1], price), at)


@dataclass(frozen=True, kw_only=True)
class Workload(Drawn):
    """How much is sent, and how messy it is. Rates are shares from 0 to 1."""

    FIRST: ClassVar[str] = "Items, users and orders arrive; some users are late"
    LATE: ClassVar[str] = "The late users arrive, and changes: updates, deletes, merges, prices"

    users: Amount = 10_000
    orders: Annotated[int, Field(ge=0)] = 100_000
    days: float = 3.0
    """The days over which orders, and changes to users and items, are spread."""
    missing_users: Share = 0.01
    """Orders whose user never arrives."""
    missing_items: Share = 0.005
    """Orders whose item never arrives."""
    late_users: Share = 0.02
    updated_users: Share = 0.02
    deleted_users: Share = 0.01
    """Odd ids are deleted by `deletedAt`, even ids by a tombstone."""
    merged_users: Share = 0.01
    updated_items: Share = 0.05
    """Items whose price changes."""
    deleted_items: Share = 0.002

    @classmethod
    def of(cls, size: int) -> Self:
        """A workload of so many orders."""
        return cls(users=max(size // 10, 1), orders=size)

    def first(self, topic: str) -> Iterator[Message]:
        """The first phase of a topic. Only `items`, `users` and `orders` have messages."""
        phases = {"items": self._items, "users": self._early_users, "orders": self._orders}
        return phases[topic]() if topic in phases else iter(())

    def late(self, topic: str) -> Iterator[Message]:
        """The second phase of a topic. There are no late `orders`."""
        changes = {"items": self._item_changes, "users": self._user_changes}
        return changes[topic]() if topic in changes else iter(())

    def endless(self, rate: float) -> tuple[str, Iterator[Message]]:
        """Orders without an end."""
        return "orders", self.orders_from_now(rate)

    def orders_from_now(self, rate: float) -> Iterator[Message]:
        """Endless orders created from now on, `rate` a second, with ids that no earlier call has used."""
        now = int(time.time() * 1000)
        live = replace(self, start=now, orders=round(rate * 86_400), days=1.0)
        for chunk in count():
            yield from live._order_chunk(chunk, CHUNK, first_id=now * 1_000)

    def _orders(self) -> Iterator[Message]:
        for chunk in range(-(-self.orders // CHUNK)):
            yield from self._order_chunk(chunk, min(CHUNK, self.orders - chunk * CHUNK))

    def _order_chunk(self, chunk: int, size: int, first_id: int = 0) -> list[Message]:
        random = self.random("orders", chunk)
        numbers = np.arange(chunk * CHUNK, chunk * CHUNK + size)
        ids = first_id + numbers
        lateness = random.exponential(HOUR / 6, size).astype(np.int64)
        created_at = self.start + (numbers * (self._span / max(self.orders, 1))).astype(np.int64) - lateness
        paid_at = created_at + random.integers(1_000, HOUR, size)
        user_ids = random.integers(1, self.users + 1, size)
        no_user = random.random(size) < self.missing_users
        user_ids[no_user] = self.users + 1 + ids[no_user]
        items = [self._order_items[index] for index in random.integers(0, len(self._order_items), size).tolist()]
        for index in np.flatnonzero(random.random(size) < self.missing_items).tolist():
            items[index] = ORDER_ITEM % (UNKNOWN_ITEM + ids[index], b'"ghost"', b'"unknown"', 9.99)
        columns = (ids.tolist(), user_ids.tolist(), items, created_at.tolist(), paid_at.tolist())
        messages = [
            Message(str(id), ORDER % (id // 3, id, user_id, item, created, paid), created)
            for id, user_id, item, created, paid in zip(*columns, strict=True)
        ]
        return self.noisy(messages, random, BREAKAGES)

    def _early_users(self) -> Iterator[Message]:
        late = self._user_groups["late"]
        yield from self._in_chunks("users", (self._new_user(id) for id in range(1, self.users + 1) if id not in late))

    def _user_changes(self) -> Iterator[Message]:
        random, groups = self.random("user changes", 0), self._user_groups
        messages = [self._new_user(id) for id in sorted(groups["late"])]
        for id in sorted(groups["updated"]):
            at, again = self._times(random, 2)
            messages += [self._user(id, at, email=b"moved%d@example.org" % id)]
            messages += [self._user(id, again, email=b"moved%d@example.com" % id)]
        for id in sorted(groups["deleted"]):
            (at,) = self._times(random, 1)
            messages.append(self._user(id, at, deleted_at=at) if id % 2 else Message(str(id), None, at))
        for id in sorted(groups["merged"] - {1}):
            (at,) = self._times(random, 1)
            parent = int(random.integers(1, id))  # a smaller id, so that chains end
            messages.append(self._user(id, at, merged_at=at, parent=parent))
        yield from self._in_chunks("late users", shuffled(messages, random))

    def _items(self) -> Iterator[Message]:
        yield from self._in_chunks("items", (item.message(item.price, item.created_at) for item in ITEMS))

    def _item_changes(self) -> Iterator[Message]:
        random = self.random("item changes", 0)
        order = random.permutation(len(ITEMS)).tolist()
        updated, deleted = round(self.updated_items * len(ITEMS)), round(self.deleted_items * len(ITEMS))
        messages = []
        for item in (ITEMS[index] for index in order[:updated]):
            at, again = self._times(random, 2)
            messages += [item.message(item.price * 1.1, at), item.message(item.price * 0.9, again)]
        for item in (ITEMS[index] for index in order[updated : updated + deleted]):
            (at,) = self._times(random, 1)
            messages.append(Message(str(item.id), None, at))
        yield from self._in_chunks("late items", shuffled(messages, random))

    @cached_property
    def _span(self) -> int:
        return int(self.days * DAY)

    @cached_property
    def _order_items(self) -> list[bytes]:
        return [ORDER_ITEM % (item.id, item.name, item.category, item.price) for item in ITEMS]

    @cached_property
    def _user_groups(self) -> dict[str, set[int]]:
        """The ids of users that arrive late, are updated, deleted or merged, by group. No user is in two groups."""
        rates = {name: getattr(self, f"{name}_users") for name in ("late", "updated", "deleted", "merged")}
        return groups_of(self.ids("user groups", self.users, 0), rates)

    def _new_user(self, id: int) -> Message:
        return self._user(id, self.opened(id))

    def _user(
        self, id: int, at: int, *, email: bytes = b"", deleted_at: int = -1, merged_at: int = -1, parent: int = -1
    ) -> Message:
        first, last = FIRST_NAMES[id % len(FIRST_NAMES)], LAST_NAMES[id // len(FIRST_NAMES) % len(LAST_NAMES)]
        names = first.encode(), last.encode(), email or b"user%d@example.org" % id
        return Message(str(id), USER % (id, *names, self.opened(id), deleted_at, merged_at, parent), at)

    def _user_created_at(self, id: int) -> int:
        """A time in the year that ends one day before `start`."""
        return self.start - DAY - id * 7_919_000 % (365 * DAY)

    def _times(self, random: np.random.Generator, size: int) -> list[int]:
        return times(random, size, since=self.start, span=self._span)

    def _in_chunks(self, purpose: str, messages: Iterable[Message]) -> Iterator[Message]:
        for chunk, taken in enumerate(chunks(messages)):
            yield from self.noisy(taken, self.random(purpose, chunk), BREAKAGES)


def _read_items() -> list[Item]:
    def text(cell: str) -> bytes:
        return json.dumps(cell or None).encode()

    with ITEMS_FILE.open(newline="", encoding="utf-8") as file:
        return [
            Item(
                id=int(row["id"]),
                created_at=int(row["created_at_epoch"]),
                adjective=text(row["adjective"]),
                category=text(row["category"]),
                modifier=text(row["modifier"]),
                name=text(row["name"]),
                price=float(row["price"]),
            )
            for row in csv.DictReader(file)
        ]


ITEMS = _read_items()
