"""A synthetic, messy ledger of customers, accounts and transactions. The same seed gives the same messages.

There are two phases. `first` has most customers, accounts and transactions. `late` has those that arrive late, and
changes, shuffled: customers who move or are deleted, accounts that move to another district or are closed. In both
phases, some messages are sent twice, or broken. A broken message is an extra copy of a good one.
"""

import json
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cached_property
from itertools import count
from typing import Any, ClassVar, Self

import numpy as np

from pulsar_lakehouse.domains import Amount, Share
from pulsar_lakehouse.domains.draws import DAY, UNREADABLE, Breakage, Drawn, chunks, groups_of, shuffled, times
from pulsar_lakehouse.pulsar.produce import Message

DISTRICTS = 77
FREQUENCIES = ("Monthly Issuance", "Weekly Issuance", "Issuance After Transaction")
CREDITS = ("Credit in Cash", "Collection from Another Bank")
DEBITS = ("Withdrawal in Cash", "Remittance to Another Bank", "Credit Card Withdrawal")
NAMES = ("Emma Avaya Smith", "Noah Everest Thompson", "Olivia Brooklynne Johnson", "Liam Irvin White", "Zoë Ōno")
CITIES = ("Albuquerque", "Chicago", "New York City", "San Francisco", "St. Louis")

BREAKAGES: tuple[Breakage, ...] = (
    lambda payload: payload.replace(b'Time": ', b'Time": "yesterday", "was": '),
    *UNREADABLE,
)
TRANSACTION_BREAKAGES: tuple[Breakage, ...] = (
    lambda payload: payload.replace(b'"amount": "', b'"amount": "about '),
    lambda payload: payload.replace(b'"type": "', b'"type": "No '),
    *BREAKAGES,
)


@dataclass(frozen=True, kw_only=True)
class Workload(Drawn):
    """How much is sent, and how messy it is. Rates are shares from 0 to 1."""

    FIRST: ClassVar[str] = "Customers, accounts and transactions arrive; some of each are late"
    LATE: ClassVar[str] = "The late ones arrive, and changes: customers and accounts move, are deleted or closed"

    customers: Amount = 2_000
    transactions: Amount = 20_000
    days: float = 14.0
    """The days over which transactions, and changes to customers and accounts, are spread."""
    missing_customers: Share = 0.01
    """Transactions whose customer never arrives."""
    missing_accounts: Share = 0.005
    """Transactions whose account never arrives."""
    late_transactions: Share = 0.02
    late_customers: Share = 0.02
    moved_customers: Share = 0.05
    deleted_customers: Share = 0.01
    """They are deleted by a tombstone."""
    late_accounts: Share = 0.01
    moved_accounts: Share = 0.05
    closed_accounts: Share = 0.01
    """They are closed by `closedAt`."""

    @classmethod
    def of(cls, size: int) -> Self:
        """A workload of so many transactions."""
        return cls(customers=max(size // 10, 10), transactions=size)

    def first(self, topic: str) -> Iterator[Message]:
        """The first phase of a topic. Only `customers`, `accounts` and `transactions` have messages."""
        late_customers, late_accounts = self._customer_groups["late"], self._account_groups["late"]
        early = {
            "customers": (self._customer(id) for id in range(1, self.customers + 1) if id not in late_customers),
            "accounts": (self._account(id) for id in range(1, self.accounts + 1) if id not in late_accounts),
            "transactions": self._first_transactions(late=False),
        }
        return self._sent(early.get(topic, ()), f"first {topic}")

    def late(self, topic: str) -> Iterator[Message]:
        """The second phase of a topic."""
        late = {
            "customers": self._customer_changes(),
            "accounts": self._account_changes(),
            "transactions": self._first_transactions(late=True),
        }
        return self._sent(late.get(topic, ()), f"late {topic}")

    def endless(self, rate: float) -> tuple[str, Iterator[Message]]:
        """Transactions made from now on, `rate` a second, with ids that no earlier call has used."""
        now = int(time.time() * 1000)
        live = replace(self, start=now, transactions=max(round(rate * 86_400), 1), days=1.0)
        made = live._transactions(count(), first_id=now * 1_000)
        return "transactions", live._sent((message for message, _ in made), "endless transactions")

    @property
    def accounts(self) -> int:
        """Fewer than customers: some share an account."""
        return -(-self.customers * 4 // 5)

    def _first_transactions(self, *, late: bool) -> Iterator[Message]:
        return (each for each, is_late in self._transactions(range(self.transactions)) if is_late == late)

    def _transactions(self, numbers: Iterable[int], first_id: int = 1) -> Iterator[tuple[Message, bool]]:
        """Each transaction, and whether it is late, in the order of their times."""
        random = self.random("transactions")
        balances: Counter[str] = Counter()
        rates = self.missing_customers, self.missing_accounts, self.late_transactions
        for number in numbers:
            at = self.start + int(number * self._span / self.transactions)
            customer = int(random.integers(1, self.customers + 1))
            account = _account_id((customer - 1) % self.accounts + 1)
            cents = int(random.integers(100, 500_000))
            is_credit = cents > balances[account] or random.random() < 0.4
            balances[account] += cents if is_credit else -cents
            kinds = CREDITS if is_credit else DEBITS
            no_customer, no_account, is_late = random.random(3) < rates
            payload = {
                "transactionId": f"T{first_id + number:08}",
                "accountId": _account_id(self.accounts + first_id + number) if no_account else account,
                "customerId": _customer_id(self.customers + first_id + number if no_customer else customer),
                "eventTime": at,
                "type": "Credit" if is_credit else "Debit",
                "operation": kinds[int(random.integers(len(kinds)))],
                "amount": _amount(cents),
                "balance": _amount(balances[account]),
            }
            yield _message(f"T{first_id + number:08}", payload, at), bool(is_late)

    def _customer_changes(self) -> Iterator[Message]:
        random, groups = self.random("customer changes"), self._customer_groups
        yield from (self._customer(id) for id in sorted(groups["late"]))
        for id in sorted(groups["moved"]):
            first, second = self._times(random, 2)
            yield self._customer(id, first, moves=1)
            yield self._customer(id, second, moves=2)
        for id in sorted(groups["deleted"]):
            (at,) = self._times(random, 1)
            yield Message(_customer_id(id), None, at)

    def _account_changes(self) -> Iterator[Message]:
        random, groups = self.random("account changes"), self._account_groups
        yield from (self._account(id) for id in sorted(groups["late"]))
        for id in sorted(groups["moved"]):
            first, second = self._times(random, 2)
            yield self._account(id, first, moves=1)
            yield self._account(id, second, moves=2)
        for id in sorted(groups["closed"]):
            (at,) = self._times(random, 1)
            yield self._account(id, at, closed_at=at)

    def _customer(self, id: int, at: int | None = None, *, moves: int = 0) -> Message:
        payload: dict[str, Any] = {
            "customerId": _customer_id(id),
            "fullName": NAMES[id % len(NAMES)],
            "email": f"customer{id}@example.org",
            "city": CITIES[(id // len(NAMES) + moves) % len(CITIES)],
            "updateTime": self.opened(id) if at is None else at,
        }
        return _message(payload["customerId"], payload, payload["updateTime"])

    def _account(self, id: int, at: int | None = None, *, moves: int = 0, closed_at: int | None = None) -> Message:
        opened = self.opened(id)
        payload: dict[str, Any] = {
            "accountId": _account_id(id),
            "districtId": (id + moves) % DISTRICTS + 1,
            "frequency": FREQUENCIES[id % len(FREQUENCIES)],
            "creationDate": f"{datetime.fromtimestamp(opened / 1000, UTC):%Y-%m-%d}",
            "updateTime": opened if at is None else at,
            "closedAt": closed_at,
        }
        return _message(payload["accountId"], payload, payload["updateTime"])

    @cached_property
    def _span(self) -> int:
        return int(self.days * DAY)

    @cached_property
    def _customer_groups(self) -> dict[str, set[int]]:
        rates = {"late": self.late_customers, "moved": self.moved_customers, "deleted": self.deleted_customers}
        return groups_of(self.ids("customer groups", self.customers), rates)

    @cached_property
    def _account_groups(self) -> dict[str, set[int]]:
        rates = {"late": self.late_accounts, "moved": self.moved_accounts, "closed": self.closed_accounts}
        return groups_of(self.ids("account groups", self.accounts), rates)

    def _times(self, random: np.random.Generator, size: int) -> list[int]:
        """Moments in the days of the workload, in order."""
        return times(random, size, since=self.start, span=self._span)

    def _sent(self, messages: Iterable[Message], purpose: str) -> Iterator[Message]:
        """The messages in no order, with noise."""
        random = self.random(purpose)
        breakages = TRANSACTION_BREAKAGES if "transactions" in purpose else BREAKAGES
        for taken in chunks(messages):
            yield from self.noisy(shuffled(taken, random), random, breakages)


def _message(key: str, payload: dict[str, Any], at: int) -> Message:
    return Message(key, json.dumps(payload).encode(), at)


def _customer_id(number: int) -> str:
    return f"C{number:08}"


def _account_id(number: int) -> str:
    return f"A{number:08}"


def _amount(cents: int) -> str:
    return f"{cents // 100}.{cents % 100:02}"
