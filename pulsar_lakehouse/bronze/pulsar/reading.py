"""Read one range of a partition into Arrow record batches."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, nullcontext
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import numpy as np
import pulsar
import pyarrow as pa

from .admin import Admin, EntryMetadata
from .columns import ARROW_SCHEMA, PROPERTIES, TIMESTAMP
from .credentials import supplier
from .options import Cluster, NoAnswerError, Options, PulsarSourceError
from .positions import BEGINNING, Position, Range, backwards, between, spans_between

BATCH_ROWS = 20_000
BATCH_BYTES = 32 * 2**20
QUEUE_MESSAGES = 5_000
QUEUE_BYTES = 256 * 2**20
POLL_SECONDS = 1.0

REFUSALS = (pulsar.AuthenticationError, pulsar.AuthorizationError, pulsar.TopicNotFound)
"""Errors that a retry would not cure. Other errors of the client mean that the broker could not be reached."""

Message = Any
"""A message as the client's own library has it: the Python object around it would cost time for each message."""

LAST_MILLISECOND = 253_402_300_799_999


def connect(cluster: Cluster, logger: pulsar.ConsoleLogger | pulsar.FileLogger) -> pulsar.Client:
    """A client. Raises PulsarSourceError if there is no token to send, or TLS keeps us from the issuer."""
    return pulsar.Client(
        cluster.service_url,
        authentication=_authentication(cluster),
        listener_name=cluster.listener_name,
        tls_certificate_file_path=cluster.tls_certificate,
        tls_private_key_file_path=cluster.tls_key,
        tls_trust_certs_file_path=cluster.tls_trust_certs,
        tls_validate_hostname=cluster.tls_validate_hostname,
        logger=logger,
    )


def _authentication(cluster: Cluster) -> pulsar.Authentication | None:
    if cluster.has_token:
        return pulsar.AuthenticationToken(cluster.token or supplier(cluster))
    if cluster.tls_certificate:
        return pulsar.AuthenticationTLS(cluster.tls_certificate, cluster.tls_key)
    return None


def read_range(options: Options, planned: Range, client: pulsar.Client | None = None) -> Iterator[pa.RecordBatch]:
    """All messages of a range as batches of `ARROW_SCHEMA`. A `client` that is given stays open.

    Every entry of the range is accounted for: it was read, or the broker says that it is not a message by itself (a
    chunk of a larger message, or a marker). A poll that returns nothing does not end a range. Messages are in order,
    except that a large message that began before the range can come before messages that precede it.
    Raises PulsarSourceError if no message comes for `readTimeout` seconds, if the broker refuses, or, with
    `failOnDataLoss`, if entries of the range are gone.
    """
    try:
        logger = pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)
        with nullcontext(client) if client else closing(connect(options, logger)) as connected:
            yield from _RangeReader(options, planned, connected).batches()
    except REFUSALS as error:
        raise PulsarSourceError(f"{planned}: {error}") from error
    except pulsar.PulsarException as error:
        raise NoAnswerError(f"{planned}: {error}") from error


@dataclass
class _Rows:
    """Rows under construction. Values that all messages of an entry share are stored once for each entry."""

    messages: list[tuple[str | None, bytes | None, dict[str, str], int]] = field(default_factory=list)
    """Key, payload, properties and event time."""
    entries: list[tuple[Position, int, int, int, str, int | None]] = field(default_factory=list)
    """Position, number of messages, index of the first one, publish time, producer and version of the schema."""
    bytes: int = 0

    def is_full(self) -> bool:
        return len(self.messages) >= BATCH_ROWS or self.bytes >= BATCH_BYTES

    def append(self, message: Message) -> None:
        payload = message.data()
        is_tombstone = not payload and message.has_null_value()
        key, properties = message.partition_key() or None, message.properties()
        self.messages.append((key, None if is_tombstone else payload, properties, message.event_timestamp()))
        self.bytes += len(payload)


class _RangeReader:
    def __init__(self, options: Options, planned: Range, client: pulsar.Client) -> None:
        self._options = options
        self._range = planned
        self._client = client
        self._admin = Admin(options)
        self._seen = planned.start
        """The last entry that was read; at first, the one before the range."""

    def batches(self) -> Iterator[pa.RecordBatch]:
        rows = _Rows()
        reader = self._open(self._range.start)
        messages = self._messages(reader, may_end=self._nothing_can_come)
        for message in messages:
            position = _position(message)
            if position <= self._range.start:  # the broker sends the batch at the start again
                continue
            if position > self._range.end:
                break
            if position != (self._seen.ledger, self._seen.entry + 1):
                yield from self._account_for(between(self._range.spans, self._seen, position))
            self._take_entry(message, messages, rows)
            self._seen = position
            if rows.is_full():
                yield _to_arrow(self._range.partition, rows)
                rows = _Rows()
            if position == self._range.end:
                break
        reader.close()
        if rows.messages:
            yield _to_arrow(self._range.partition, rows)
        yield from self._account_for(between(self._range.spans, self._seen))

    def _open(self, start: Position) -> pulsar.Reader:
        after = pulsar.MessageId.earliest if start == BEGINNING else pulsar.MessageId(-1, *start, -1)
        return self._client.create_reader(self._range.partition, after, receiver_queue_size=self._queue_size())

    def _queue_size(self) -> int:
        """How many messages the client may fetch ahead: fewer if they are large, to bound memory."""
        spans = self._range.spans
        entry_bytes = sum(span.bytes for span in spans) // sum(span.entries for span in spans)
        if entry_bytes * QUEUE_MESSAGES <= QUEUE_BYTES:
            return QUEUE_MESSAGES
        first = self._entry(Position(spans[0].ledger, spans[0].first))
        return min(QUEUE_MESSAGES, max(1, QUEUE_BYTES * (first.messages if first else 1) // entry_bytes))

    def _messages(self, reader: pulsar.Reader, may_end: Callable[[], bool]) -> Iterator[Message]:
        """Messages as they arrive.

        Ends after a second without any if `may_end()` is true, and raises NoAnswerError after `readTimeout` seconds.
        """
        read_next, timeout, quiet = reader._reader.read_next, round(POLL_SECONDS * 1000), 0.0
        while True:
            try:
                message = read_next(timeout)
            except pulsar.Timeout:
                quiet += POLL_SECONDS
                if may_end():
                    return
                if quiet >= self._options.read_timeout:
                    raise NoAnswerError(f"{self._range}: no message for {quiet:g} s after {self._seen}") from None
            else:
                quiet = 0.0
                yield message

    def _nothing_can_come(self) -> bool:
        """Whether the rest of the range holds no message to wait for.

        A large message that began at or before the last entry read does not count: `_account_for` reads it.
        """
        ended = set()
        for position in backwards(self._range.spans, self._seen):
            try:
                entry = self._entry(position)
            except NoAnswerError:
                return False
            if entry is None or entry.is_marker:
                continue
            if entry.chunks == 1 or (entry.chunk == 0 and entry.uuid in ended):
                return False
            if entry.is_message:
                ended.add(entry.uuid)
        return True

    def _entry(self, position: Position) -> EntryMetadata | None:
        entry = self._admin.entry(self._range.partition, position)
        if entry is None and self._options.fail_on_data_loss:
            raise PulsarSourceError(f"{self._range}: the broker has deleted {position}; failOnDataLoss=false goes on")
        return entry

    def _take_entry(self, first: Message, messages: Iterator[Message], rows: _Rows) -> None:
        """Add the first message of an entry, and the rest of its batch."""
        id, position = first.message_id(), _position(first)
        count = _batch_size(id) - id.batch_index() if id.batch_index() >= 0 else 1
        version = first.int_schema_version()  # schema_version() fails on versions above 127
        written = first.publish_timestamp(), first.producer_name(), version if version >= 0 else None
        rows.entries.append((position, count, id.batch_index(), *written))
        rows.append(first)
        last = first
        for last in islice(messages, count - 1):
            rows.append(last)
        if count > 1 and (_position(last), last.message_id().batch_index()) != (position, _batch_size(id) - 1):
            raise PulsarSourceError(f"{self._range}: the batch at {position} arrived incomplete or out of order")

    def _account_for(self, positions: Iterator[Position]) -> Iterator[pa.RecordBatch]:
        """Check why entries gave no message, and read the large messages that end among them."""
        for position in positions:
            entry = self._entry(position)
            if entry is None or not entry.is_message:
                continue
            if entry.chunks == 1:
                raise PulsarSourceError(f"{self._range}: the message at {position} did not arrive")
            yield from self._read_chunked(position, entry)

    def _read_chunked(self, position: Position, last: EntryMetadata) -> Iterator[pa.RecordBatch]:
        """Read one large message from its first chunk on. It belongs to the range of its last chunk."""
        first = self._first_chunk(position, last)
        if first is None:
            if self._options.fail_on_data_loss:
                raise PulsarSourceError(
                    f"{self._range}: the broker has deleted the first chunks of the message at {position}; "
                    "failOnDataLoss=false goes on"
                )
            return
        reader = self._open(Position(first.ledger, first.entry - 1))
        message = next(each for each in self._messages(reader, may_end=lambda: False) if _position(each) >= position)
        reader.close()
        if _position(message) != position:
            raise PulsarSourceError(f"{self._range}: the message at {position} did not arrive")
        rows = _Rows()
        self._take_entry(message, iter(()), rows)
        yield _to_arrow(self._range.partition, rows)

    def _first_chunk(self, position: Position, last: EntryMetadata) -> Position | None:
        ledgers = self._admin.ledgers(self._range.partition).ledgers
        for candidate in backwards(spans_between(ledgers, BEGINNING, position)):
            entry = self._admin.entry(self._range.partition, candidate)
            if entry and entry.uuid == last.uuid and entry.chunk == 0:
                return candidate
        return None


def _position(message: Message) -> Position:
    id = message.message_id()
    return Position(id.ledger_id(), id.entry_id())


def _batch_size(id: pulsar.MessageId) -> int:
    """The number of messages in a message's batch, which the client exposes only in the serialised id.

    The id is Pulsar's MessageIdData (PulsarApi.proto). All fields before the nested ones are varints; batch_size is
    field 6.
    """
    data: bytes = id.serialize()
    at, number, value = 0, 0, 0
    while at < len(data):
        number, at = data[at] >> 3, at + 1
        value, shift = 0, 0
        while data[at] & 0x80:
            value, shift, at = value | (data[at] & 0x7F) << shift, shift + 7, at + 1
        value, at = value | data[at] << shift, at + 1
        if number == 6:
            return value
    return 1


def _to_arrow(partition: str, rows: _Rows) -> pa.RecordBatch:
    topic, index = _topic_and_index(partition)
    keys, payloads, properties, event_times = zip(*rows.messages, strict=True)
    positions, sizes, first_indexes, publish_times, producers, versions = zip(*rows.entries, strict=True)
    ledgers, entries = np.array(positions, dtype=np.int64).T
    counts, total = np.array(sizes), len(keys)
    starts = np.repeat(np.cumsum(counts) - counts - np.array(first_indexes), counts)
    entry_of_row = pa.array(np.repeat(np.arange(len(counts)), counts))
    columns = [
        pa.repeat(pa.scalar(topic, pa.string()), total),
        pa.repeat(pa.scalar(index, pa.int32()), total),
        pa.array(np.repeat(ledgers, counts)),
        pa.array(np.repeat(entries, counts)),
        pa.array((np.arange(total) - starts).astype(np.int32)),
        pa.array(keys, pa.string()),
        pa.array(payloads, pa.binary()),
        _properties(properties),
        _timestamps(np.array(event_times)),
        _timestamps(np.repeat(publish_times, counts)),
        pa.array(producers, pa.string()).take(entry_of_row),
        pa.array(versions, pa.int64()).take(entry_of_row),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=ARROW_SCHEMA)


def _topic_and_index(partition: str) -> tuple[str, int]:
    """The topic and the partition's index, which is 0 for a topic without partitions."""
    topic, _, index = partition.rpartition("-partition-")
    return (topic, int(index)) if topic and index.isdigit() else (partition, 0)


def _timestamps(milliseconds: np.ndarray) -> pa.Array:
    """Epoch milliseconds as timestamps. NULL for 0, which means that none was set, and for years after 9999."""
    unusable = (milliseconds == 0) | (milliseconds > LAST_MILLISECOND)
    return pa.array(np.where(unusable, 0, milliseconds).astype(np.int64) * 1000, mask=unusable).cast(TIMESTAMP)


def _properties(properties: Sequence[dict[str, str]]) -> pa.Array:
    if not any(properties):
        return pa.MapArray.from_arrays(np.zeros(len(properties) + 1, np.int32), [], [])
    return pa.array([list(each.items()) for each in properties], PROPERTIES)
