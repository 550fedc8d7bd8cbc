"""Read one range of a partition into Arrow record batches."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice

import numpy as np
import pulsar
import pyarrow as pa

from bronze.pulsar.admin import Admin, EntryMetadata
from bronze.pulsar.options import Options, PulsarSourceError
from bronze.pulsar.positions import BEGINNING, Position, Range, spans_between

BATCH_ROWS = 20_000
BATCH_BYTES = 32 * 2**20
QUEUE_MESSAGES = 5_000
POLL_SECONDS = 1.0
AFTER_ALL = Position(2**63 - 1, 0)

TIMESTAMP = pa.timestamp("us", tz="UTC")
PROPERTIES = pa.map_(pa.string(), pa.string())
ARROW_SCHEMA = pa.schema(
    [
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("ledger_id", pa.int64()),
        ("entry_id", pa.int64()),
        ("batch_index", pa.int32()),
        ("key", pa.string()),
        ("payload", pa.binary()),
        ("properties", PROPERTIES),
        ("event_time", TIMESTAMP),
        ("publish_time", TIMESTAMP),
        ("producer", pa.string()),
        ("schema_version", pa.int64()),
    ]
)


def connect(options: Options) -> pulsar.Client:
    return pulsar.Client(
        options.service_url,
        authentication=pulsar.AuthenticationToken(options.token) if options.token else None,
        tls_trust_certs_file_path=options.tls_trust_certs,
        tls_validate_hostname=options.tls_validate_hostname,
        logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error),
    )


def read_range(options: Options, planned: Range) -> Iterator[pa.RecordBatch]:
    """All messages of a range, in order, as batches of `ARROW_SCHEMA`.

    Every entry of the range is accounted for: it was read, or the broker says that it is no message of its own (a
    chunk of a larger message, a marker). A poll that returns nothing does not end a range.
    Raises PulsarSourceError if the range makes no progress for `readTimeout`, or if entries of it are gone.
    """
    try:
        client = connect(options)
        try:
            yield from _RangeReader(options, planned, client).batches()
        finally:
            client.close()
    except pulsar.PulsarException as error:
        raise PulsarSourceError(f"{planned}: {error}") from error


@dataclass
class _Rows:
    """Columns under construction; what the messages of an entry share is kept once for each entry."""

    keys: list[str | None] = field(default_factory=list)
    payloads: list[bytes | None] = field(default_factory=list)
    properties: list[dict[str, str]] = field(default_factory=list)
    event_times: list[int] = field(default_factory=list)
    bytes: int = 0
    entries: list[Position] = field(default_factory=list)
    counts: list[int] = field(default_factory=list)
    first_indexes: list[int] = field(default_factory=list)
    publish_times: list[int] = field(default_factory=list)
    producers: list[str] = field(default_factory=list)
    schema_versions: list[int | None] = field(default_factory=list)

    def is_full(self) -> bool:
        return len(self.keys) >= BATCH_ROWS or self.bytes >= BATCH_BYTES


class _RangeReader:
    def __init__(self, options: Options, planned: Range, client: pulsar.Client) -> None:
        self._options = options
        self._range = planned
        self._client = client
        self._seen = planned.start
        """The last entry that was read or accounted for."""

    def batches(self) -> Iterator[pa.RecordBatch]:
        rows = _Rows()
        reader = self._open(self._range.start)
        messages = self._messages(reader)
        for message in messages:
            position = _position(message)
            if position <= self._range.start:  # a batch at the start is sent again
                continue
            if position > self._range.end:
                break
            yield from self._account_for(before=position)
            self._take_entry(message, messages, rows)
            self._seen = position
            if rows.is_full():
                yield _to_arrow(self._range.partition, rows)
                rows = _Rows()
            if position == self._range.end:
                break
        reader.close()
        if rows.keys:
            yield _to_arrow(self._range.partition, rows)
        yield from self._account_for(before=AFTER_ALL)

    def _open(self, start: Position) -> pulsar.Reader:
        after = pulsar.MessageId.earliest if start == BEGINNING else pulsar.MessageId(-1, *start, -1)
        return self._client.create_reader(self._range.partition, after, receiver_queue_size=QUEUE_MESSAGES)

    def _messages(self, reader: pulsar.Reader) -> Iterator[pulsar.Message]:
        """Messages as they come; ends when the rest of the range holds none, and fails when nothing comes."""
        quiet = 0.0
        while True:
            try:
                message = reader.read_next(round(POLL_SECONDS * 1000))
            except pulsar.Timeout:
                quiet += POLL_SECONDS
                if not self._rest_holds_messages():
                    return
                if quiet >= self._options.read_timeout:
                    raise PulsarSourceError(f"{self._range}: nothing came for {quiet:.0f} s after {self._seen}") from None
            else:
                quiet = 0.0
                yield message

    def _rest_holds_messages(self) -> bool:
        admin = Admin(self._options)
        rest = list(self._range.between(self._seen, AFTER_ALL))
        return any(admin.entry(self._range.partition, position).is_message for position in reversed(rest))

    def _take_entry(self, first: pulsar.Message, messages: Iterator[pulsar.Message], rows: _Rows) -> None:
        """Add the message that opens an entry, and the rest of its batch."""
        id = first.message_id()
        batched = id.batch_index() >= 0
        count = _batch_size(id) - id.batch_index() if batched else 1
        rows.entries.append(_position(first))
        rows.counts.append(count)
        rows.first_indexes.append(id.batch_index())
        rows.publish_times.append(first.publish_timestamp())
        rows.producers.append(first.producer_name())
        rows.schema_versions.append(_schema_version(first))
        _append(first, rows)
        last = first
        for last in islice(messages, count - 1):
            _append(last, rows)
        if count > 1 and (_position(last), last.message_id().batch_index()) != (rows.entries[-1], _batch_size(id) - 1):
            raise PulsarSourceError(f"{self._range}: the batch at {rows.entries[-1]} did not come whole and in order")

    def _account_for(self, before: Position) -> Iterator[pa.RecordBatch]:
        """Explain the entries between the last one seen and `before`; read the large messages among them."""
        for position in self._range.between(self._seen, before):
            entry = Admin(self._options).entry(self._range.partition, position)
            if entry.is_message and entry.chunks > 1:
                yield self._read_chunked(position, entry)
            elif entry.is_message:
                raise PulsarSourceError(f"{self._range}: the message at {position} did not come")

    def _read_chunked(self, position: Position, last: EntryMetadata) -> pa.RecordBatch:
        """Read a large message that begins before this range, and so belongs to it by its last chunk alone."""
        admin, start = Admin(self._options), position
        ledgers, _ = admin.ledgers(self._range.partition)
        entries = [
            Position(span.ledger, entry)
            for span in spans_between(ledgers, BEGINNING, position)
            for entry in range(span.first, span.last + 1)
        ]
        for start in reversed(entries):
            entry = admin.entry(self._range.partition, start)
            if entry.uuid == last.uuid and entry.chunk == 0:
                break
        reader = self._open(Position(start.ledger, start.entry - 1))
        rows = _Rows()
        for message in self._messages(reader):
            if _position(message) >= position:
                self._take_entry(message, iter(()), rows)
                break
        reader.close()
        return _to_arrow(self._range.partition, rows)


def _append(message: pulsar.Message, rows: _Rows) -> None:
    payload = message.data()
    rows.payloads.append(None if not payload and message.has_null_value() else payload)
    rows.bytes += len(payload)
    rows.keys.append(message.partition_key() or None)
    rows.properties.append(message.properties())
    rows.event_times.append(message.event_timestamp())


def _position(message: pulsar.Message) -> Position:
    id = message.message_id()
    return Position(id.ledger_id(), id.entry_id())


def _batch_size(id: pulsar.MessageId) -> int:
    """The size of a message's batch, which the client tells only in the serialised id.

    That is Pulsar's MessageIdData (PulsarApi.proto), all varints before the nested fields; batch_size is field 6.
    """
    data, at, number, value = id.serialize(), 0, 0, 0
    while at < len(data):
        number, at = data[at] >> 3, at + 1
        value, shift = 0, 0
        while data[at] & 0x80:
            value, shift, at = value | (data[at] & 0x7F) << shift, shift + 7, at + 1
        value, at = value | data[at] << shift, at + 1
        if number == 6:
            return value
    return 1


def _schema_version(message: pulsar.Message) -> int | None:
    version: int = message._message.int_schema_version()  # schema_version() fails on versions above 127
    return version if version >= 0 else None


def _to_arrow(partition: str, rows: _Rows) -> pa.RecordBatch:
    topic, separator, index = partition.rpartition("-partition-")
    ledgers, entries = np.array(rows.entries, dtype=np.int64).T
    counts = np.array(rows.counts)
    total = len(rows.keys)
    starts = np.repeat(np.cumsum(counts) - counts - np.array(rows.first_indexes), counts)
    columns = [
        _constant(topic if separator else partition, total, pa.string()),
        _constant(int(index) if separator else 0, total, pa.int32()),
        pa.array(np.repeat(ledgers, counts)),
        pa.array(np.repeat(entries, counts)),
        pa.array((np.arange(total) - starts).astype(np.int32)),
        pa.array(rows.keys, pa.string()),
        pa.array(rows.payloads, pa.binary()),
        _properties(rows.properties),
        _timestamps(np.array(rows.event_times)),
        _timestamps(np.repeat(rows.publish_times, counts)),
        pa.array(rows.producers, pa.string()).take(pa.array(np.repeat(np.arange(len(counts)), counts))),
        pa.array(rows.schema_versions, pa.int64()).take(pa.array(np.repeat(np.arange(len(counts)), counts))),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=ARROW_SCHEMA)


def _constant(value: object, length: int, kind: pa.DataType) -> pa.Array:
    return pa.repeat(pa.scalar(value, kind), length)


def _timestamps(milliseconds: np.ndarray) -> pa.Array:
    """Epoch milliseconds, of which 0 means that the producer set none, as timestamps."""
    return pa.array(milliseconds * 1000, mask=milliseconds == 0).cast(TIMESTAMP)


def _properties(properties: list[dict[str, str]]) -> pa.Array:
    if not any(properties):
        return pa.MapArray.from_arrays(np.zeros(len(properties) + 1, np.int32), [], [])
    return pa.array([list(each.items()) for each in properties], PROPERTIES)
