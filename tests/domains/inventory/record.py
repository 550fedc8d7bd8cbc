"""Records the domain `inventory`: a Postgres that takes orders, what Debezium Server sends of it, and what is in it.

    python -m tests.domains.inventory.record FOLDER

Needs about a minute. The messages are in `<table>.jsonl.gz`, in the order of the topic. `database.jsonl.gz` has the
rows of each table in the end, by `SELECT *`, and what a trigger has recorded of their changes, with the commits' times.
"""

import gzip
import json
import random
import shutil
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import psycopg
import pulsar
from psycopg.rows import dict_row

from pulsar_lakehouse.local import broker
from pulsar_lakehouse.pulsar.endpoint import connected
from pulsar_lakehouse.settings import Settings, load_settings
from tests.debezium import Connector, Form, logical_postgres
from tests.replicated import RECORDED, SETTING

NAME = "inventory"
TABLES = {
    "customers": "id int PRIMARY KEY, name text NOT NULL, email text, city text NOT NULL, notes text, "
    "registered timestamptz NOT NULL DEFAULT now()",
    "products": "sku text PRIMARY KEY, name text NOT NULL, price numeric(10, 2) NOT NULL, stock int NOT NULL, "
    "discontinued date",
    "orders": "id bigint PRIMARY KEY, customer_id int NOT NULL, status text NOT NULL, total numeric(12, 2) NOT NULL, "
    "placed timestamptz NOT NULL DEFAULT now(), shipped timestamptz",
    "order_lines": "order_id bigint, line smallint, sku text NOT NULL, quantity int NOT NULL, "
    "PRIMARY KEY (order_id, line)",
    "promotions": "sku text PRIMARY KEY, discount smallint NOT NULL, until date",
}
MORE = "ALTER TABLE customers ALTER notes SET STORAGE EXTERNAL"
CITIES = ("Lisbon", "Porto", "Faro", "Zürich", "Bern", "Graz")
NAMES = ("Ada", "Alan", "Barbara", "Edsger", "Grace", "John", "Katherine", "Ken", "Margaret", "Zoë")
PRODUCTS = ("lamp", "desk", "chair", "shelf", "clock", "stool", "rug", "vase", "mirror", "bench", "mug", "tray")
NOTES = (
    "Called about a late parcel.",
    "Prefers deliveries in the morning.",
    "Asked for an invoice with another address.",
    "Returned a chair, as one leg was loose.",
)
LONG = 60
"""Sentences in notes so long that Postgres keeps them out of line."""


class Business:
    """Customers who order products, whose prices change. The same seed gives the same changes."""

    def __init__(self, connection: psycopg.Connection[dict[str, Any]], seed: int = 7) -> None:
        self.database, self.random, self.orders, self.customers = connection, random.Random(seed), 0, 0

    def open(self) -> None:
        """What the first snapshot has."""
        for _ in range(15):
            self.register()
        for number, name in enumerate(PRODUCTS[:-2], 1):
            self.offer(f"{name[0].upper()}-{100 + number}", name)
        self.promote(3)

    def begin(self) -> None:
        """Forget when rows came: a snapshot does not know."""
        self.run("TRUNCATE recorded")
        for name in TABLES:
            self.run(
                f"INSERT INTO recorded (name, new, transaction) SELECT '{name}', to_jsonb(each), NULL FROM {name} each"
            )

    def work(self, transactions: int) -> None:
        """Commit so many transactions, some milliseconds apart, as Debezium tells times in milliseconds."""
        kinds: dict[Callable[[], None], int] = {
            self.order: 8,
            self.change_price: 4,
            self.move: 3,
            self.proceed: 5,
            self.note: 1,
            self.register: 1,
            self.leave: 1,
        }
        for _ in range(transactions):
            (change,) = self.random.choices([*kinds], [*kinds.values()])
            self.commit(change)

    def commit(self, change: Callable[[], object]) -> None:
        with self.database.transaction():
            change()
        time.sleep(0.01)

    def order(self) -> None:
        """An order, its lines, and the stock of its products: a transaction over three tables."""
        self.orders += 1
        products = self.some("SELECT sku, price FROM products WHERE discontinued IS NULL", self.random.randint(1, 3))
        lines = [(each["sku"], self.random.randint(1, 4), each["price"]) for each in products]
        (customer,) = self.some("SELECT id FROM customers", 1)
        self.run(
            "INSERT INTO orders VALUES (%s, %s, 'placed', %s)",
            *(self.orders, customer["id"], sum(quantity * price for _, quantity, price in lines)),
        )
        for line, (sku, quantity, _) in enumerate(lines, 1):
            self.run("INSERT INTO order_lines VALUES (%s, %s, %s, %s)", self.orders, line, sku, quantity)
            self.run("UPDATE products SET stock = stock - %s WHERE sku = %s", quantity, sku)

    def change_price(self) -> None:
        (product,) = self.some("SELECT sku FROM products", 1)
        percent = self.random.choice([-20, -10, 5, 10, 25])
        self.run("UPDATE products SET price = price * (100 + %s) / 100 WHERE sku = %s", percent, product["sku"])

    def move(self) -> None:
        """A customer moves. Long notes stay as they are, so that Postgres does not log them."""
        (customer,) = self.some("SELECT id FROM customers", 1)
        self.run("UPDATE customers SET city = %s WHERE id = %s", self.random.choice(CITIES), customer["id"])

    def proceed(self) -> None:
        """An order is shipped or cancelled."""
        for order in self.some("SELECT id FROM orders WHERE status = 'placed'", 1):
            if self.random.random() < 0.8:
                self.run("UPDATE orders SET status = 'shipped', shipped = now() WHERE id = %s", order["id"])
            else:
                self.run("UPDATE orders SET status = 'cancelled' WHERE id = %s", order["id"])

    def note(self) -> None:
        (customer,) = self.some("SELECT id FROM customers", 1)
        text = self.random.choice([None, NOTES[0], self.long_notes()])
        self.run("UPDATE customers SET notes = %s WHERE id = %s", text, customer["id"])

    def register(self) -> None:
        self.customers += 1
        name = NAMES[self.customers % len(NAMES)]
        self.run(
            "INSERT INTO customers VALUES (%s, %s, %s, %s, %s)",
            self.customers,
            name,
            self.random.choice([None, f"{name.lower()}{self.customers}@example.org"]),
            self.random.choice(CITIES),
            self.random.choice([None, NOTES[1], self.long_notes()]),
        )

    def leave(self) -> None:
        """A customer without orders is deleted."""
        query = "SELECT id FROM customers WHERE id NOT IN (SELECT customer_id FROM orders)"
        for customer in self.some(query, 1):
            self.run("DELETE FROM customers WHERE id = %s", customer["id"])

    def offer(self, sku: str, name: str) -> None:
        price = self.random.randint(500, 30_000) / 100
        self.run("INSERT INTO products VALUES (%s, %s, %s, %s)", sku, name, price, self.random.randint(50, 90))

    def rename(self) -> None:
        """A product gets another number: the update of a key."""
        self.run("UPDATE products SET sku = 'L-901' WHERE sku = 'L-101'")

    def discontinue(self) -> None:
        (product,) = self.some("SELECT sku FROM products", 1)
        self.run("UPDATE products SET discontinued = '2026-12-01' WHERE sku = %s", product["sku"])

    def promote(self, number: int) -> None:
        for product in self.some("SELECT sku FROM products", number):
            self.run("INSERT INTO promotions VALUES (%s, %s, NULL)", product["sku"], self.random.choice([5, 10, 20]))

    def long_notes(self) -> str:
        return " ".join(self.random.choices(NOTES, k=LONG))

    def some(self, query: str, number: int) -> list[dict[str, Any]]:
        """So many rows of a query, or all."""
        rows = self.database.execute(f"{query} ORDER BY 1").fetchall()
        return self.random.sample(rows, min(number, len(rows)))

    def run(self, query: str, *values: Any) -> None:
        self.database.execute(query, values)


def record(folder: Path, settings: Settings) -> None:
    own = settings.model_copy(update={"home": folder / "home"})
    (folder / "postgres").mkdir()
    endpoint = broker.start(own)
    pulsar_ = own.pulsar.model_copy(
        update={"service_url": endpoint.service_url, "admin_url": endpoint.admin_url, "namespace": "public/default"}
    )
    own = own.model_copy(update={"pulsar": pulsar_})
    try:
        with logical_postgres(folder / "postgres") as url:
            database = psycopg.connect(url, autocommit=True, row_factory=dict_row)
            database.execute(SETTING)
            for name, columns in TABLES.items():
                database.execute(f"CREATE TABLE {name} ({columns}); {RECORDED.format(name)}")
            database.execute(MORE)
            connector = Connector(NAME, url, own, folder / "connector", tables=[*TABLES], form=Form.SERVER)
            replicate(Business(database), connector)
            write([kept(database)], folder / "database.jsonl.gz")
            database.close()
            connector.close()
        with connected(endpoint, own) as client:
            for name in TABLES:
                write(received(client, f"public/default/{NAME}.public.{name}"), folder / f"{name}.jsonl.gz")
    finally:
        broker.stop(own)


def replicate(business: Business, connector: Connector) -> None:
    """Two days of business: the promotions of the first one are truncated."""
    business.commit(business.open)
    business.begin()
    connector.start()
    connector.wait_until_sent()
    business.work(35)
    business.commit(lambda: business.offer("M-111", PRODUCTS[-2]))
    business.commit(business.rename)
    business.commit(lambda: business.run("TRUNCATE promotions"))
    business.work(15)
    business.commit(lambda: business.promote(2))
    business.commit(business.discontinue)
    business.work(35)
    connector.wait_until_sent()


def kept(database: psycopg.Connection[dict[str, Any]]) -> dict[str, Any]:
    """The rows of each table, and the changes in their order. Those before the snapshot have no time."""
    tables = {
        name: [row["row"] for row in database.execute(f"SELECT to_jsonb(each) AS row FROM {name} AS each ORDER BY 1")]
        for name in TABLES
    }
    changes = database.execute(
        "SELECT name AS table, to_char(pg_xact_commit_timestamp(transaction::xid) AT TIME ZONE 'UTC', "
        """'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') AS at, old, new FROM recorded ORDER BY position"""
    ).fetchall()
    return {"tables": tables, "changes": changes}


def received(client: pulsar.Client, topic: str) -> Iterator[dict[str, Any]]:
    """The messages of a topic, as `lakehouse send` takes them."""
    reader = client.create_reader(topic, pulsar.MessageId.earliest)
    while reader.has_message_available():
        message = reader.read_next(10_000)
        payload = message.data().decode()
        yield {
            "key": message.partition_key(),
            **({"properties": message.properties()} if message.properties() else {}),
            "payload": json.loads(payload) if payload else None,
        }


def write(values: Iterable[object], file: Path) -> None:
    """A line of JSON for each value."""
    lines = "".join(json.dumps(each, ensure_ascii=False, separators=(",", ":")) + "\n" for each in values)
    file.write_bytes(gzip.compress(lines.encode(), mtime=0))


if __name__ == "__main__":
    (target,) = map(Path, sys.argv[1:])
    target.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory() as scratch:
        record(Path(scratch), load_settings())
        for file in Path(scratch).glob("*.gz"):
            shutil.copy(file, target)
