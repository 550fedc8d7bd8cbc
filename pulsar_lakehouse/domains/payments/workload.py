"""Synthetic, messy invoices and payments. The same seed gives the same messages.

There are two phases. `first` has most invoices, payments and refunds. `late` has those that arrive late, and payments
that are corrected or cancelled. Some invoices are in both topics; some payments come in two parts, or after more than
the hour in which they count. Some messages are sent twice, or broken. A broken message is an extra copy of a good one.
"""

import csv
import json
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime
from functools import cache, cached_property
from itertools import count
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np

from pulsar_lakehouse.domains import Amount, Expected, Share
from pulsar_lakehouse.domains.draws import DAY, UNREADABLE, Breakage, Drawn, shuffled
from pulsar_lakehouse.pulsar.produce import Message

HOUR = 3_600_000
TOPICS = {"invoices-eu": ("DE", "PT", "SE"), "invoices-us": ("CA", "US")}
"""The regions of each topic's invoices."""
EVENTS = "payment_events"
ISSUERS: dict[str, tuple[str, int | None]] = {
    "340012": ("amex", 5),
    "370034": ("amex", 20),
    "400056": ("visa", 10),
    "411111": ("visa", 15),
    "455678": ("visa", 70),
    "510510": ("mastercard", 30),
    "520082": ("mastercard", 5),
    "222300": ("mastercard", 90),
    "601100": ("other", None),
}
"""By the first digits of a card, its network and its risk."""
BREAKAGES: tuple[Breakage, ...] = (
    lambda payload: payload.replace(b'"cents": ', b'"cents": "about", "was": ', 1),
    *UNREADABLE,
)
INVOICE_BREAKAGES: tuple[Breakage, ...] = (
    lambda payload: payload.replace(b'"card": "', b'"card": "1'),  # the check digit is wrong then
    lambda payload: payload.replace(b'"cents": ', b'"cents": -'),
    *BREAKAGES,
)

INVOICES = """
    SELECT id, region.name, network, issuer.risk, array_to_string([each.id for each in payments], ' ')
    FROM gold.enriched_invoices
"""
REVENUE = "SELECT region, day, invoices, unpaid, cents, paid_cents FROM gold.revenue_by_region_and_day"
REFUNDS = "SELECT network, refunds, cents FROM gold.refunds_by_network"

Row = dict[str, Any]
Joined = tuple[Row, list[Row]]
"""An invoice, and its payments."""


class Drawing(NamedTuple):
    """A message, where it is sent, and when."""

    topic: str
    message: Message
    is_late: bool


@dataclass(frozen=True, kw_only=True)
class Workload(Drawn):
    """How much is sent, and how messy it is. Rates are shares from 0 to 1."""

    FIRST: ClassVar[str] = "Invoices and payments arrive; a service is asked for the risk of each card's bank"
    LATE: ClassVar[str] = "The late ones arrive; payments are corrected or cancelled"

    invoices: Amount = 10_000
    days: float = 14.0
    """The days over which invoices are spread."""
    missing_regions: Share = 0.01
    """Invoices of a region that no file has."""
    in_both: Share = 0.02
    """Invoices that both topics have."""
    unpaid: Share = 0.1
    in_parts: Share = 0.1
    """Invoices that are paid by two payments."""
    too_late: Share = 0.05
    """Payments after more than an hour."""
    delayed: Share = 0.05
    """Invoices and payments that arrive in the second phase."""
    corrected: Share = 0.03
    """Payments whose amount changes."""
    cancelled: Share = 0.02
    """Payments that a tombstone takes back."""
    refunded: Share = 0.1

    @classmethod
    def of(cls, size: int) -> Self:
        """A workload of about so many messages."""
        return cls(invoices=max(size // 3, 10))

    def first(self, topic: str) -> Iterator[Message]:
        """The first phase of a topic. Only those in TOPICS and EVENTS have messages."""
        return self._sent(topic, is_late=False)

    def late(self, topic: str) -> Iterator[Message]:
        """The second phase of a topic."""
        return self._sent(topic, is_late=True)

    def endless(self, rate: float) -> tuple[str, Iterator[Message]]:
        """European invoices of now on, `rate` a second, with ids that no earlier call has used."""
        now, random, topic = int(time.time() * 1000), self.random("endless"), "invoices-eu"
        made = (_invoice(random, topic, now + number, now + int(number * 1000 / rate)) for number in count())
        return topic, (_message(invoice["id"], invoice, invoice["issuedAt"]) for invoice in made)

    def expected(self) -> Iterator[Expected]:
        """What follows from the messages alone."""
        invoices = _last(self._good(*TOPICS))
        payments = defaultdict(list)
        for payment in _last(self._good(EVENTS, type="payment")).values():
            payments[payment["invoiceId"]].append(payment)
        regions = _regions()
        joined = {id: _paid(each, payments[id]) for id, each in invoices.items() if each["regionCode"] in regions}
        batches = _last(self._good(EVENTS, type="refunds")).values()
        refunds = [refund for batch in batches for refund in batch["refunds"] if refund["invoiceId"] in joined]
        yield Expected("invoices with their payments", INVOICES, [_enriched(*each) for each in joined.values()])
        yield Expected("revenue by region and day", REVENUE, list(_revenue(joined.values())))
        yield Expected("refunds by network", REFUNDS, list(_refunds(refunds, invoices)))
        waiting = [(id,) for id in invoices.keys() - joined.keys()]
        yield Expected("invoices that wait", "SELECT id FROM quarantine.waiting_invoices", waiting)

    @cached_property
    def _drawings(self) -> list[Drawing]:
        random = self.random("invoices")
        return [drawing for number in range(self.invoices) for drawing in self._drawn(random, number)]

    def _drawn(self, random: np.random.Generator, number: int) -> Iterator[Drawing]:
        """The messages about an invoice."""
        rates = self.missing_regions, self.in_both, self.unpaid, self.in_parts, self.refunded, self.delayed
        no_region, in_both, is_unpaid, in_parts, is_refunded, is_late = random.random(6) < rates
        topics = list(TOPICS) if in_both else [str(random.choice(list(TOPICS)))]
        invoice = _invoice(random, topics[0], number, self.start + int(number * self.days * DAY / self.invoices))
        invoice |= {"regionCode": "XX"} if no_region else {}
        for topic in topics:
            yield Drawing(topic, _message(invoice["id"], invoice, invoice["issuedAt"]), bool(is_late))
        if is_unpaid:
            return
        half = invoice["cents"] // 2
        for part, cents in enumerate((half, invoice["cents"] - half) if in_parts else (invoice["cents"],)):
            yield from self._payment(random, invoice, part, cents)
        if is_refunded:
            refunds = [{"id": f"R{number}-{part}", "invoiceId": invoice["id"], "cents": 50 + part} for part in range(2)]
            at = invoice["issuedAt"] + DAY
            batch = {"batch": f"B{number}", "refunds": [each | {"refundedAt": at} for each in refunds]}
            yield _event("refunds", f"B{number}", batch, at)

    def _payment(self, random: np.random.Generator, invoice: Row, part: int, cents: int) -> Iterator[Drawing]:
        """Its authorization, which is of no declared kind, the payment, and what becomes of it."""
        rates = self.too_late, self.delayed, self.corrected, self.cancelled
        too_late, is_late, is_corrected, is_cancelled = random.random(4) < rates
        at = invoice["issuedAt"] + int(random.integers(0, HOUR)) + HOUR * bool(too_late)
        id = f"P{invoice['id']}-{part}"
        payment = {"id": id, "invoiceId": invoice["id"], "cents": cents, "paidAt": at}
        yield _event("authorization", id, payment, at)
        yield _event("payment", id, payment, at, is_late)
        if is_corrected:
            yield _event("payment", id, payment | {"cents": cents - 1}, at + 1, True)
        if is_cancelled:
            yield _event("payment", id, None, at + 2, True)

    def _sent(self, topic: str, *, is_late: bool) -> Iterator[Message]:
        """The messages in no order, with noise."""
        random = self.random(f"{topic} {is_late}")
        messages = [each.message for each in self._drawings if (each.topic, each.is_late) == (topic, is_late)]
        return iter(self.noisy(shuffled(messages, random), random, INVOICE_BREAKAGES if topic in TOPICS else BREAKAGES))

    def _good(self, *topics: str, type: str = "") -> Iterator[Message]:
        """The messages that are not broken: of topics, or of a type."""
        for topic in topics:
            for message in (*self.first(topic), *self.late(topic)):
                if not message.broken and (message.properties or {}).get("type", "") == type:
                    yield message


def _invoice(random: np.random.Generator, topic: str, number: int, at: int) -> Row:
    issuer = str(random.choice(list(ISSUERS)))
    return {
        "id": f"I{number}",
        "regionCode": str(random.choice(TOPICS[topic])),
        "card": with_check_digit(f"{issuer}{random.integers(10**8, 10**9)}"),
        "cents": int(random.integers(100, 50_000)),
        "issuedAt": at,
    }


def with_check_digit(digits: str) -> str:
    """The number of a card, whose last digit is that of Luhn."""
    doubled = [int(digit) * (2 - place % 2) for place, digit in enumerate(reversed(digits))]
    return f"{digits}{-sum(number // 10 + number % 10 for number in doubled) % 10}"


def _message(key: str, payload: Row | None, at: int) -> Message:
    return Message(key, None if payload is None else json.dumps(payload).encode(), at)


def _event(type: str, key: str, payload: Row | None, at: int, is_late: object = False) -> Drawing:
    return Drawing(EVENTS, _message(key, payload, at)._replace(properties={"type": type}), bool(is_late))


def _last(messages: Iterable[Message]) -> dict[str, Row]:
    """The payload of the last message of each key, if that is no tombstone."""
    last = {message.key: message.payload for message in sorted(messages, key=lambda message: message.event_time)}
    return {key: json.loads(payload) for key, payload in last.items() if payload is not None}


@cache
def _regions() -> dict[str, str]:
    """The names of regions, by code."""
    files = Path(__file__).with_name("regions").glob("*.csv")
    return {
        row["code"]: row["name"]
        for file in files
        for row in csv.DictReader(file.read_text(encoding="utf-8").splitlines())
    }


def _paid(invoice: Row, payments: Iterable[Row]) -> Joined:
    """The invoice with its payments of the hour after it, in the order of their times."""
    partners = [each for each in payments if 0 <= each["paidAt"] - invoice["issuedAt"] <= HOUR]
    return invoice, sorted(partners, key=lambda each: (each["paidAt"], each["id"]))


def _enriched(invoice: Row, payments: list[Row]) -> tuple[Any, ...]:
    network, risk = ISSUERS[invoice["card"][:6]]
    ids = " ".join(each["id"] for each in payments) or None
    return invoice["id"], _regions()[invoice["regionCode"]], network, risk, ids


def _revenue(joined: Iterable[Joined]) -> Iterator[tuple[Any, ...]]:
    groups = defaultdict[tuple[str, date], list[Joined]](list)
    for invoice, payments in joined:
        day = datetime.fromtimestamp(invoice["issuedAt"] / 1000, UTC).date()
        groups[_regions()[invoice["regionCode"]], day].append((invoice, payments))
    for group, rows in groups.items():
        unpaid = sum(not payments for _, payments in rows)
        asked = sum(invoice["cents"] for invoice, _ in rows)
        yield *group, len(rows), unpaid, asked, sum(each["cents"] for _, payments in rows for each in payments)


def _refunds(refunds: Iterable[Row], invoices: dict[str, Row]) -> Iterator[tuple[Any, ...]]:
    number, cents = Counter[str](), Counter[str]()
    for refund in refunds:
        network, _ = ISSUERS[invoices[refund["invoiceId"]]["card"][:6]]
        number[network] += 1
        cents[network] += refund["cents"]
    for network in number:
        yield network, number[network], cents[network]
