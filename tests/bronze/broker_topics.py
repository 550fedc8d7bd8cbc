"""Fills, changes and reads topics of the real broker."""

from collections.abc import Iterable, Sequence
from typing import Any

from pyspark.sql.types import StructType

from pulsar_lakehouse.bronze.pulsar import PulsarDataSource
from pulsar_lakehouse.bronze.pulsar.admin import Admin
from pulsar_lakehouse.bronze.pulsar.options import Options
from pulsar_lakehouse.bronze.pulsar.positions import BEGINNING, Ledger, Position, Range, Span, backwards, spans_between
from pulsar_lakehouse.bronze.pulsar.reading import read_range
from pulsar_lakehouse.pulsar.endpoint import Endpoint, call_admin, connect
from pulsar_lakehouse.settings import Settings

Row = dict[str, Any]


class Topics:
    """A test's own namespace, and one client that sends to it."""

    def __init__(self, namespace: str, endpoint: Endpoint, settings: Settings) -> None:
        self.namespace, self.endpoint, self.settings = namespace, endpoint, settings
        self.client = connect(endpoint, settings)
        call_admin("PUT", f"namespaces/{namespace}", endpoint, settings, accept=(409,))

    def admin(
        self, method: str, topic: str, path: str = "", body: object = None, accept: tuple[int, ...] = (409,)
    ) -> Any:
        path = topic.replace("://", "/") + path
        response = call_admin(method, path, self.endpoint, self.settings, body=body, accept=accept)
        return response.json() if response.text else None

    def create(self, name: str = "events", partitions: int = 0) -> str:
        topic = f"persistent://{self.namespace}/{name}"
        self.admin("PUT", topic, "/partitions" if partitions else "", body=partitions or None)
        return topic

    def grow(self, topic: str, partitions: int) -> None:
        """Add partitions to the topic, and its subscriptions to them.

        The broker answers with 412 if a stream was quicker to create a subscription.
        """
        self.admin("POST", topic, "/partitions", body=partitions, accept=(412,))

    def roll_ledger(self, topic: str) -> None:
        """Close the ledger: later messages go to a new one."""
        self.admin("PUT", topic, "/unload")

    def delete_read_ledgers(self, topic: str) -> None:
        """Make the broker delete the closed ledgers that no subscription needs."""
        self.roll_ledger(topic)
        self.admin("POST", topic, "/trim")

    def send(self, topic: str, *payloads: bytes | None, batched: bool = False, **producer: Any) -> list[Position]:
        """Send each message as an entry, or all of them as one batch; None is a tombstone. Returns their positions."""
        options = {"batching_max_publish_delay_ms": 60_000, "batching_max_messages": 1_000, "block_if_queue_full": True}
        sender = self.client.create_producer(topic, batching_enabled=batched, **options, **producer)
        found: list[Position] = []
        for payload in payloads:
            sender.send_async(payload, lambda result, id: found.append(Position(id.ledger_id(), id.entry_id())))
        sender.flush()
        sender.close()
        return found

    def send_numbers(self, topic: str, numbers: Iterable[int], *, batch: int = 1) -> None:
        """Send numbers in order, `batch` of them per entry."""
        payloads = [str(number).encode() for number in numbers]
        for at in range(0, len(payloads), batch):
            self.send(topic, *payloads[at : at + batch], batched=batch > 1)

    def options(self, topic: str, **options: object) -> dict[str, str]:
        urls = {"serviceUrl": self.endpoint.service_url, "adminUrl": self.endpoint.admin_url}
        return urls | {"topic": topic} | {name: str(value) for name, value in options.items()}

    def ledgers(self, partition: str) -> list[Ledger]:
        return Admin(Options.parse(self.options(partition))).ledgers(partition).ledgers

    def entries(self, partition: str) -> list[Position]:
        """The positions of all entries, oldest first."""
        return list(backwards(spans_between(self.ledgers(partition), BEGINNING)))[::-1]

    def plan(self, topic: str, **options: object) -> list[Range]:
        reader = PulsarDataSource(self.options(topic, **options)).reader(StructType())
        return [partition.value for partition in reader.partitions()]

    def read(self, topic: str, **options: object) -> list[Row]:
        """The rows of a batch query, range by range, without Spark."""
        planned = self.plan(topic, **options)
        return [row for each in planned for row in self.read_range(each, **options)]

    def read_range(self, planned: Range, **options: object) -> list[Row]:
        parsed = Options.parse(self.options(planned.partition, **options))
        return [row for batch in read_range(parsed, planned) for row in batch.to_pylist()]

    def backlog(self, partition: str, subscription: str) -> int:
        stats = self.admin("GET", partition, "/stats?getPreciseBacklog=true")
        return int(stats["subscriptions"][subscription]["msgBacklog"])

    def close(self) -> None:
        self.client.close()


def payloads(rows: Iterable[Row]) -> list[bytes | None]:
    return [row["payload"] for row in rows]


def numbers(rows: Iterable[Row]) -> list[int]:
    return [int(row["payload"]) for row in rows]


def range_of(partition: str, start: Position, entries: Sequence[Position]) -> Range:
    """The range that covers consecutive entries of one ledger."""
    span = Span(entries[0].ledger, entries[0].entry, entries[-1].entry, 1_000)
    return Range(partition, start, (span,))
