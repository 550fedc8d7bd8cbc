"""A Postgres that takes orders, as Debezium Server has sent it. Nothing is drawn: the folder `recorded` has all of it.

There are two phases: the snapshot with the first half of the log, in which the products lag behind, and the rest.
`tests/domains/inventory/record.py` records it.
"""

import gzip
import json
import time
from base64 import b64encode
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from itertools import count, groupby
from pathlib import Path
from typing import Any, ClassVar, Self

from pulsar_lakehouse.domains import Expected, Share
from pulsar_lakehouse.pulsar.produce import Message, MessageSchema

RECORDED = Path(__file__).with_name("recorded")
SCHEMA = MessageSchema("STRING")
"""Of all topics: Debezium Server sends texts."""
KEYS = {
    "customers": ("id",),
    "products": ("sku",),
    "orders": ("id",),
    "order_lines": ("order_id", "line"),
    "promotions": ("sku",),
}
FACTS = "order_lines"
OF_TEXT = {
    **dict.fromkeys(("registered", "placed", "shipped"), datetime.fromisoformat),
    **dict.fromkeys(("discontinued", "until"), date.fromisoformat),
}
"""Makes the values of columns that JSON has as text."""

Row = dict[str, Any]
Database = dict[str, dict[tuple[Any, ...], Row]]
"""By table and key, the rows."""


@dataclass(frozen=True, kw_only=True)
class Workload:
    """How the recorded log is split into phases."""

    FIRST: ClassVar[str] = "A snapshot of the database arrives, and half of its log; products lag behind"
    LATE: ClassVar[str] = "The rest of the log arrives"

    half: Share = 0.5
    """Of the log's changes, those that arrive in the first phase."""
    lag: Share = 0.2
    """Of them, those that the products lag behind."""

    @classmethod
    def of(cls, size: int) -> Self:
        """The recording, which has one size."""
        return cls()

    def first(self, topic: str) -> Iterator[Message]:
        """The first phase of a topic. Only those in KEYS have messages."""
        return (message for at, message in _messages(topic) if at <= self._until(topic))

    def late(self, topic: str) -> Iterator[Message]:
        """The second phase of a topic."""
        return (message for at, message in _messages(topic) if at > self._until(topic))

    def endless(self, rate: float) -> tuple[str, Iterator[Message]]:
        """Prices that change from now on, `rate` a second."""
        now = int(time.time() * 1000)
        last = {message.key: message.payload for _, message in _messages("products")}
        products = [(key, json.loads(payload)) for key, payload in last.items() if payload]
        position = max(envelope["payload"]["source"]["lsn"] for _, envelope in products)

        def changes() -> Iterator[Message]:
            for number in count():
                key, envelope = products[number % len(products)]
                price = b64encode((100 + number * 7 % 30_000).to_bytes(2)).decode()  # in cents
                envelope["payload"]["op"] = "u"
                envelope["payload"]["after"]["price"] = price
                envelope["payload"]["source"] |= {
                    "lsn": position + number + 1,
                    "ts_ms": now + int(number * 1000 / rate),
                }
                yield Message(key, json.dumps(envelope).encode(), 0, schema=SCHEMA)

        return "products", changes()

    def expected(self) -> Iterator[Expected]:
        """Each table is that of the database, and each line has the state that the database had when it came."""
        (database,) = _lines("database")
        for table, rows in database["tables"].items():
            columns = ", ".join(rows[0])
            source = "gold.enriched_order_lines" if table == FACTS else f"silver.{table} WHERE deleted_at IS NULL"
            found = [tuple(_typed(row).values()) for row in rows]
            yield Expected(f"{table} as in Postgres", f"SELECT {columns} FROM {source}", found)
        yield Expected(
            "prices and customers as of each order",
            """
            SELECT order_id, line, "order".status, customer.name, customer.city, customer.notes, product.name,
                product.price
            FROM gold.enriched_order_lines
            """,
            list(_lines_as_of_their_time(database["changes"])),
        )

    def _until(self, topic: str) -> int:
        """The time of the last change of the topic in the first phase."""
        log = sorted(at for table in KEYS for at, _ in _messages(table))
        share = self.half - (self.lag if topic == "products" else 0)
        return log[max(0, int(share * len(log)) - 1)]


def state_after(changes: Iterable[Row]) -> Iterator[tuple[Database, list[Row]]]:
    """The database after each transaction, and the changes of it, as its own trigger has recorded them."""
    database: Database = {table: {} for table in KEYS}
    for _, group in groupby(changes, key=lambda change: change["at"]):
        transaction = list(group)
        for change in transaction:
            rows, keys = database[change["table"]], KEYS[change["table"]]
            if change["old"]:
                del rows[tuple(change["old"][key] for key in keys)]
            if change["new"]:
                rows[tuple(change["new"][key] for key in keys)] = change["new"]
        yield database, transaction


def _lines_as_of_their_time(changes: Iterable[Row]) -> Iterator[tuple[Any, ...]]:
    for database, transaction in state_after(changes):
        for line in (change["new"] for change in transaction if change["table"] == FACTS):
            order = database["orders"][(line["order_id"],)]
            customer = database["customers"][(order["customer_id"],)]
            product = database["products"][(line["sku"],)]
            of_customer = (customer[name] for name in ("name", "city", "notes"))
            yield (line["order_id"], line["line"], order["status"], *of_customer, product["name"], product["price"])


def _messages(topic: str) -> Iterator[tuple[int, Message]]:
    """The messages of a topic, each with the time of its transaction, in epoch milliseconds."""
    at = 0
    for line in _lines(topic) if topic in KEYS else ():
        payload = line["payload"]
        if payload is not None:  # a tombstone follows the delete
            at = payload["payload"]["source"]["ts_ms"]
        text = None if payload is None else json.dumps(payload, ensure_ascii=False, separators=(",", ":")).encode()
        yield at, Message(line["key"], text, 0, line.get("properties"), SCHEMA)


def _lines(name: str) -> Iterator[Row]:
    with gzip.open(RECORDED / f"{name}.jsonl.gz", "rt", encoding="utf-8") as lines:
        for line in lines:
            yield json.loads(line, parse_float=Decimal)


def _typed(row: Row) -> Row:
    return {name: OF_TEXT[name](value) if name in OF_TEXT and value else value for name, value in row.items()}
