"""Sends numbered messages to the partitions of a topic, exactly once even if they are sent again.

The last message of a partition carries its number, so the topic itself tells what it has. See
docs/decisions/007-publishing.md for why the broker's deduplication alone is not enough.
"""

from collections.abc import Iterable
from contextlib import closing
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import NamedTuple

import pulsar

from pulsar_lakehouse.errors import BrokerError, BusyError
from pulsar_lakehouse.pulsar.endpoint import NO_SUCH_TOPIC, Endpoint, call_admin, connected
from pulsar_lakehouse.pulsar.produce import BATCH_BYTES, BATCHED, PENDING, Encoded, MessageSchema
from pulsar_lakehouse.settings import Settings

SEQUENCE = "sequence"
"""The message property with its number. Numbers increase within a partition."""

SINCE = "since"
"""The message property with the table version whose rows were all published first; later versions follow as changes."""

UNKNOWN = -1
"""Stands for that version if messages lack the property: their topic got the changes of all versions."""

ACKNOWLEDGED_WITHIN = 60.0
"""Seconds without any acknowledgement after which sending fails."""

Numbered = tuple[int, str, bytes | None]
"""Sequence number, key and payload. A payload of None is a tombstone."""


class Last(NamedTuple):
    """The properties of the last message of a partition."""

    sequence: int
    since: int


@dataclass(frozen=True, kw_only=True)
class Publication:
    """Where messages go, and who sends them: a topic only ever has one `publisher`."""

    topic: str
    publisher: str
    record: str
    avro: str
    """The schema of the payloads: an Avro record, as JSON."""
    since: int
    """The value of the property `SINCE` of each message."""
    endpoint: Endpoint
    settings: Settings

    def partition(self, index: int) -> str:
        return f"persistent://{self.settings.pulsar.namespace}/{self.topic}-partition-{index}"


def count_partitions(publication: Publication) -> int:
    path = f"persistent/{publication.settings.pulsar.namespace}/{publication.topic}/partitions"
    found = call_admin("GET", path, publication.endpoint, publication.settings, accept=(404,))
    count = int(found.json()["partitions"]) if found.ok else 0
    if count == 0:
        raise BrokerError(f"{publication.topic}: {NO_SUCH_TOPIC}")
    return count


def last_messages(publication: Publication) -> list[Last | None]:
    """The last message of each partition; None for an empty one. Raises BrokerError if another publisher sent it."""
    count = count_partitions(publication)
    with connected(publication.endpoint, publication.settings) as client:
        return [_last_message(client, publication, index) for index in range(count)]


def send(publication: Publication, index: int, messages: Iterable[Numbered]) -> int:
    """Send the messages that a partition lacks, wait until they are acknowledged, and return their number.

    Raises BusyError if another process publishes to the partition. Raises BrokerError if a message was not
    acknowledged; later messages are not there either then, so a later call can send the rest.
    """
    with connected(publication.endpoint, publication.settings) as client:
        sender = _Sender(client, publication, index)
        for message in messages:
            sender.send(message)
        sender.wait()
        return sender.sent


class _Sender:
    def __init__(self, client: pulsar.Client, publication: Publication, index: int) -> None:
        self.sent = 0
        self._pending = 0
        # A callback in C: `put(result, message_id)` stores the result, and ignores its second argument, `block`.
        self._results: SimpleQueue[pulsar.Result] = SimpleQueue()
        self._partition = publication.partition(index)
        try:
            self._producer = client.create_producer(
                self._partition,
                producer_name=publication.publisher,
                schema=Encoded(MessageSchema("JSON", publication.avro), publication.record),
                send_timeout_millis=0,  # a message that times out while later ones succeed would be lost
                max_pending_messages=2 * PENDING,
                compression_type=pulsar.CompressionType.LZ4,
                **BATCHED,
            )
        except pulsar.ProducerBusy:
            raise BusyError(f"{self._partition}: another process is publishing to it: wait until it ends") from None
        last = _last_message(client, publication, index)
        if last is not None and last.since not in (publication.since, UNKNOWN):
            raise BrokerError(
                f"{self._partition}: another publisher has sent all rows of version {last.since}: try again"
            )
        self._last = -1 if last is None else last.sequence
        self._since = str(publication.since)
        if self._producer.last_sequence_id() > self._last:
            raise BrokerError(
                f"{self._partition}: the last messages that were sent are not there yet, or were deleted: try again"
            )

    def send(self, message: Numbered) -> None:
        sequence, key, payload = message
        if sequence <= self._last:
            return
        properties = {SEQUENCE: str(sequence), SINCE: self._since}
        self._producer.send_async(
            payload, self._results.put, partition_key=key, sequence_id=sequence, properties=properties
        )
        self.sent += 1
        self._pending += 1
        if self._pending == PENDING:
            self.wait(until=PENDING // 2)
        elif payload and len(payload) > BATCH_BYTES:  # the broker may refuse this one alone
            self.wait()

    def wait(self, *, until: int = 0) -> None:
        """Wait until at most `until` messages are unacknowledged."""
        while self._pending > until:
            try:
                result = self._results.get(timeout=ACKNOWLEDGED_WITHIN)
            except Empty:
                raise BrokerError(f"{self._partition}: no acknowledgement in {ACKNOWLEDGED_WITHIN:g} s") from None
            if result != pulsar.Result.Ok:
                raise BrokerError(f"{self._partition}: the broker did not acknowledge a message: {result.name}")
            self._pending -= 1


def _last_message(client: pulsar.Client, publication: Publication, index: int) -> Last | None:
    partition = publication.partition(index)
    latest = pulsar.MessageId.latest
    with closing(client.create_reader(partition, latest, start_message_id_inclusive=True)) as reader:
        if not reader.has_message_available():
            return None
        last = reader.read_next(timeout_millis=int(ACKNOWLEDGED_WITHIN * 1000))
    if last.producer_name() != publication.publisher:
        raise BrokerError(
            f"{partition} holds messages of {last.producer_name()}, which is not {publication.publisher}: "
            "delete the topic, or publish to another"
        )
    told = last.properties()
    return Last(sequence=int(told[SEQUENCE]), since=int(told.get(SINCE, UNKNOWN)))
