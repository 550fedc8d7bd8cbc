"""A Postgres that takes orders, as Debezium Server has sent it. Nothing is drawn: the folder `recorded` has all of it.

There are two phases: the snapshot with the first half of the log, in which the products lag behind, and the rest.
`tests/domains/inventory/record.py` records it.
"""

import gzip
import json
import time
from base64 import b64encode
from collections.abc import Iterable, Iterator, Sequence
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

LINES = """
    SELECT order_id, line, "order".status, customer.name, customer.city, customer.notes, product.name, product.price
    FROM gold.enriched_order_lines
"""

Row = dict[str, Any]


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
        until = self._until(topic)
        return (message for at, message in _messages(topic) if at <= until)

    def late(self, topic: str) -> Iterator[Message]:
        """The second phase of a topic."""
        until = self._until(topic)
        return (message for at, message in _messages(topic) if at > until)

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
        """Tables and histories are those of the database, and lines have the state that it had when they came."""
        (database,) = _lines("database")
        begin = _in_millis(next(change["at"] for change in database["changes"] if change["at"]))
        for table, rows in database["tables"].items():
            columns = ", ".join(rows[0])
            source = "gold.enriched_order_lines" if table == FACTS else f"silver.{table} WHERE deleted_at IS NULL"
            yield Expected(f"{table} as in Postgres", f"SELECT {columns} FROM {source}", [*map(_values, rows)])
            if table != FACTS:
                since = f"if(valid_from < '{begin}', NULL, valid_from)"  # a snapshot does not know since when
                is_row = f"deleted_at IS NULL AND {KEYS[table][0]} IS NOT NULL"
                sql = f"SELECT {columns}, {since}, valid_until FROM silver.{table}_history WHERE {is_row}"
                changes = (change for change in database["changes"] if change["table"] == table)
                yield Expected(f"the history of {table}", sql, list(_versions(changes, KEYS[table])))
        yield Expected("order lines as of their time", LINES, list(_lines_as_of_their_time(database["changes"])))

    def _until(self, topic: str) -> int:
        """The time of the last change of the topic in the first phase."""
        log = sorted(at for table in KEYS for at, _ in _messages(table))
        share = self.half - (self.lag if topic == "products" else 0)
        return log[max(0, int(share * len(log)) - 1)]


def _versions(changes: Iterable[Row], keys: Sequence[str]) -> Iterator[tuple[Any, ...]]:
    """The versions of a table's rows, each with the times when it began and ended, as its trigger has recorded them."""
    current: dict[tuple[Any, ...], tuple[Any, ...]] = {}
    for change in changes:
        at = _in_millis(change["at"])
        if change["old"]:
            yield (*current.pop(_key(change["old"], keys)), at)
        if change["new"]:
            current[_key(change["new"], keys)] = (*_values(change["new"]), at)
    for version in current.values():
        yield (*version, None)


def _lines_as_of_their_time(changes: Iterable[Row]) -> Iterator[tuple[Any, ...]]:
    """The rows of LINES, from the changes that the trigger has recorded, transaction by transaction."""
    state: dict[str, dict[tuple[Any, ...], Row]] = {table: {} for table in KEYS}
    for _, group in groupby(changes, key=lambda change: change["at"]):
        transaction = list(group)
        for change in transaction:
            rows, keys = state[change["table"]], KEYS[change["table"]]
            if change["old"]:
                del rows[_key(change["old"], keys)]
            if change["new"]:
                rows[_key(change["new"], keys)] = change["new"]
        for line in (change["new"] for change in transaction if change["table"] == FACTS):
            order = state["orders"][(line["order_id"],)]
            customer = state["customers"][(order["customer_id"],)]
            product = state["products"][(line["sku"],)]
            of_customer = (customer[name] for name in ("name", "city", "notes"))
            yield (line["order_id"], line["line"], order["status"], *of_customer, product["name"], product["price"])


def _key(row: Row, names: Sequence[str]) -> tuple[Any, ...]:
    return tuple(row[name] for name in names)


def _values(row: Row) -> tuple[Any, ...]:
    return tuple(OF_TEXT[name](value) if name in OF_TEXT and value else value for name, value in row.items())


def _in_millis(at: str | None) -> datetime | None:
    """The time of a commit as Debezium tells it."""
    time = at and datetime.fromisoformat(at)
    return time.replace(microsecond=time.microsecond // 1000 * 1000) if time else None


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
