"""Read one range of a partition into Arrow record batches."""

import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import cache, cached_property
from itertools import islice
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np
import pulsar
import pyarrow as pa

from .admin import Admin, EntryMetadata
from .columns import ARROW_SCHEMA, PROPERTIES, TIMESTAMP
from .credentials import supplier
from .options import Cluster, NoAnswerError, Options, PulsarSourceError
from .positions import AFTER_ALL, BEGINNING, Position, Range, backwards, between, spans_between

if TYPE_CHECKING:
    from .encryption import PrivateKey, Sealed

BATCH_ROWS = 20_000
BATCH_BYTES = 32 * 2**20
QUEUE_MESSAGES = 5_000
QUEUE_BYTES = 256 * 2**20
FIRST_POLL, POLL_SECONDS = 0.0625, 1.0
"""Seconds to wait for a message before asking whether one can come: at first, and at most, after doubling."""

REFUSALS = (pulsar.AuthenticationError, pulsar.AuthorizationError, pulsar.TopicNotFound)
"""Errors that a retry would not cure. Other errors of the client mean that the broker could not be reached."""

Message = Any
"""A message as the client's own library has it: the Python object around it would cost time for each message."""

LAST_MILLISECOND = 253_402_300_799_999


_LOG: list[str] = []
"""The file that all clients of this process log to: that of the first one."""


def connect(cluster: Cluster, log: str) -> pulsar.Client:
    """A client, which the caller must close. If it is the first of the process, all of them log to the file `log`.

    Raises PulsarSourceError if there is no token to send, or TLS keeps us from the issuer.
    """
    if not _LOG:
        _LOG.append(log)
    return pulsar.Client(
        cluster.service_url,
        authentication=_authentication(cluster),
        listener_name=cluster.listener_name,
        tls_certificate_file_path=cluster.tls_certificate,
        tls_private_key_file_path=cluster.tls_key,
        tls_trust_certs_file_path=cluster.tls_trust_certs,
        tls_validate_hostname=cluster.tls_validate_hostname,
        logger=pulsar.FileLogger(pulsar.LoggerLevel.Warn, log),
    )


def _authentication(cluster: Cluster) -> pulsar.Authentication | None:
    if cluster.has_token:
        return pulsar.AuthenticationToken(cluster.token or supplier(cluster))
    if cluster.tls_certificate:
        return pulsar.AuthenticationTLS(cluster.tls_certificate, cluster.tls_key)
    return None


@cache
def _nameless_log() -> str:
    """A log that vanishes with the process."""
    with tempfile.TemporaryFile() as file:
        return f"/dev/fd/{os.dup(file.fileno())}"


@contextmanager
def _own_client(cluster: Cluster) -> Iterator[pulsar.Client]:
    """A client for the block. Its errors go to stderr at the end."""
    log = _nameless_log()
    before = Path(log).stat().st_size
    try:
        with closing(connect(cluster, log)) as client:
            yield client
    finally:
        logged = Path(log).read_bytes()[before:].decode(errors="replace")
        sys.stderr.writelines(line for line in logged.splitlines(keepends=True) if " ERROR " in line)


def _logged() -> int:
    """How much clients of this process have logged: they warn of each message that they don't hand on."""
    return Path(_LOG[0]).stat().st_size


def _has_warned(since: int) -> bool:
    """Whether clients of this process have logged more since then than that they can't decrypt a message."""
    return any(b"crypt" not in line.lower() for line in Path(_LOG[0]).read_bytes()[since:].splitlines())


def read_range(options: Options, planned: Range, client: pulsar.Client | None = None) -> Iterator[pa.RecordBatch]:
    """All messages of a range as batches of `ARROW_SCHEMA`. A `client` that is given, of `connect`, stays open.

    Every entry of the range is accounted for: it was read, or it is not a message by itself (a chunk of a larger
    message, or what the broker hides from readers: a marker, or a message of an aborted transaction). A poll that
    returns nothing does not end a range. Messages are in order, except that a large message that began before the range
    can come before messages that precede it.
    Raises PulsarSourceError if no message comes for `readTimeout` seconds, if the broker refuses, or, with
    `failOnDataLoss`, if entries of the range are gone.
    """
    try:
        with nullcontext(client) if client else _own_client(options) as connected:
            reader, before = _RangeReader(options, planned, connected), planned.compacted_before
            yield from reader.batches() if before is None else reader.kept_by_compaction(before)
    except REFUSALS as error:
        raise PulsarSourceError(f"{planned}: {error}") from error
    except pulsar.PulsarException as error:
        raise NoAnswerError(f"{planned}: {error}") from error


@dataclass
class _Rows:
    """Rows under construction. Values that all messages of an entry share are stored once for each entry."""

    messages: list[tuple[str | None, bytes | None, Mapping[str, str], int]] = field(default_factory=list)
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
        self._rows = _Rows()
        self._seen = planned.start
        """The last entry that was read; at first, the one before the range."""
        self._hidden: list[tuple[Position, Position]] = []
        """Positions of entries that followed each other, if the broker can have hidden those between from readers."""

    def batches(self) -> Iterator[pa.RecordBatch]:
        logged, reader = _logged(), self._open(self._range.start)
        messages = self._messages(reader, may_end=lambda: self._nothing_can_come(reader))
        for message in messages:
            position = _position(message)
            if position <= self._range.start:  # the broker sends the batch at the start again
                continue
            if position > self._range.end:
                break
            if position != (self._seen.ledger, self._seen.entry + 1):
                yield from self._account_for(self._seen, position)
            self._take_entry(message, messages)
            self._seen = position
            if self._rows.is_full():
                yield self._taken()
            if position == self._range.end:
                break
        reader.close()
        yield from self._account_for(self._seen, AFTER_ALL)
        if self._hidden and (_logged() > logged or self._has_lost_ledgers()):
            for after, before in self._hidden:
                yield from self._ask_for(after, before)
        if self._rows.messages:
            yield self._taken()

    def kept_by_compaction(self, before: int) -> Iterator[pa.RecordBatch]:
        """What compaction has kept of the ledgers before one: the last message of each key, where it was."""
        logged, reader = _logged(), self._open(BEGINNING, is_read_compacted=True)
        for message in self._messages(reader, may_end=lambda: not reader.has_message_available()):
            if _position(message).ledger >= before:
                break
            if (context := message.encryption_context()) and context.is_decryption_failed():
                self._take_sealed(_position(message), _encryption().Sealed.received(message))
            elif message.data() or message.partition_key():  # else compaction has removed it from its batch
                self._take(message, 1)
            if self._rows.is_full():
                yield self._taken()
        reader.close()
        if _has_warned(logged):
            raise NoAnswerError(f"{self._range.partition}: the client has warned of messages that compaction has kept")
        if self._rows.messages:
            yield self._taken()

    def _taken(self) -> pa.RecordBatch:
        rows, self._rows = self._rows, _Rows()
        return _to_arrow(self._range.partition, rows)

    def _open(self, start: Position, *, is_read_compacted: bool = False) -> pulsar.Reader:
        after = pulsar.MessageId.earliest if start == BEGINNING else pulsar.MessageId(-1, *start, -1)
        # The broker can't be asked for what compaction has kept. Elsewhere, the client must not consume what it can't
        # decrypt: with a large message, it writes beyond its memory.
        unreadable = pulsar.ConsumerCryptoFailureAction
        return self._client.create_reader(
            self._range.partition,
            after,
            receiver_queue_size=self._queue_size(),
            is_read_compacted=is_read_compacted,
            crypto_key_reader=self._key_reader,
            crypto_failure_action=unreadable.CONSUME if is_read_compacted else unreadable.DISCARD,
        )

    def _queue_size(self) -> int:
        """How many messages the client may fetch ahead: fewer if they are large, to bound memory."""
        spans = self._range.spans
        entry_bytes = sum(span.bytes for span in spans) // sum(span.entries for span in spans)
        if entry_bytes * QUEUE_MESSAGES <= QUEUE_BYTES:
            return QUEUE_MESSAGES
        if self._range.compacted_before is not None:
            return 1
        first = self._entry(Position(spans[0].ledger, spans[0].first))
        return min(QUEUE_MESSAGES, max(1, QUEUE_BYTES * (first.messages if first else 1) // entry_bytes))

    def _messages(self, reader: pulsar.Reader, may_end: Callable[[], bool]) -> Iterator[Message]:
        """Messages as they arrive.

        Ends after a pause if `may_end()` is true, and raises NoAnswerError after `readTimeout` seconds.
        """
        read_next, poll, since = reader._reader.read_next, FIRST_POLL, 0.0
        while True:
            try:
                message = read_next(round(poll * 1000))
            except pulsar.Timeout:
                since = since or time.monotonic() - poll
                poll = min(2 * poll, POLL_SECONDS)
                if may_end():
                    return
                quiet = time.monotonic() - since  # which counts the time that the admin API takes, too
                if quiet >= self._options.read_timeout:
                    raise NoAnswerError(f"{self._range}: no message for {quiet:.0f} s after {self._seen}") from None
            else:
                poll, since = FIRST_POLL, 0.0
                yield message

    def _nothing_can_come(self, reader: pulsar.Reader) -> bool:
        """Whether the rest of the range holds no message to wait for.

        A large message that began at or before the last entry read does not count: `_account_for` reads it.
        """
        if self._has_transactions and not reader.has_message_available():
            return True
        ended = set()
        for position in backwards(self._range.spans, self._seen):
            try:
                entry = self._entry(position)
            except NoAnswerError:
                return False
            if entry is None or entry.is_hidden or entry.sealed:
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

    def _take_entry(self, first: Message, messages: Iterator[Message]) -> None:
        """Add the first message of an entry, and the rest of its batch."""
        id, position = first.message_id(), _position(first)
        count = _batch_size(id) - id.batch_index() if id.batch_index() >= 0 else 1
        self._take(first, count)
        last = first
        for last in islice(messages, count - 1):
            self._rows.append(last)
        if count > 1 and (_position(last), last.message_id().batch_index()) != (position, _batch_size(id) - 1):
            raise PulsarSourceError(f"{self._range}: the batch at {position} arrived incomplete or out of order")

    def _take(self, message: Message, count: int) -> None:
        """Add a message, which is the first one of `count` of its entry."""
        version = message.int_schema_version()  # schema_version() fails on versions above 127
        written = message.publish_timestamp(), message.producer_name(), version if version >= 0 else None
        self._rows.entries.append((_position(message), count, message.message_id().batch_index(), *written))
        self._rows.append(message)

    @cached_property
    def _has_transactions(self) -> bool:
        return self._admin.readable_end(self._range.partition) is not None

    def _has_lost_ledgers(self) -> bool:
        held = {ledger.id for ledger in self._admin.ledgers(self._range.partition).ledgers}
        return not held.issuperset(span.ledger for span in self._range.spans)

    def _account_for(self, after: Position, before: Position) -> Iterator[pa.RecordBatch]:
        """Check why the entries between two positions, if there are any, gave no message.

        Where there are transactions, the broker hides one or more entries of each, which are too many to ask for. So
        they are asked for only if the client has warned of anything until the end, or if the broker has deleted some.
        """
        if next(between(self._range.spans, after, before), None) is None:
            return
        if self._has_transactions:
            self._hidden.append((after, before))
        else:
            yield from self._ask_for(after, before)

    def _ask_for(self, after: Position, before: Position) -> Iterator[pa.RecordBatch]:
        """Ask the broker what the entries between two positions are, and take the messages that end there.

        The client hands on neither a large message that began before the range, nor one that it can't decrypt.
        """
        for position in between(self._range.spans, after, before):
            entry = self._entry(position)
            if entry is None or not entry.is_message:
                continue
            if entry.chunks == 1 and not entry.sealed:
                raise PulsarSourceError(f"{self._range}: the message at {position} did not arrive")
            chunks = [(position, entry)] if entry.chunks == 1 else self._chunks(position, entry)
            if chunks and entry.sealed:
                parts = [_encryption().Sealed.of(*each.sealed) for _, each in chunks if each.sealed]
                self._take_sealed(position, _encryption().Sealed.joined(parts))
            elif chunks:
                self._take_chunked(chunks)
            if self._rows.is_full():
                yield self._taken()

    def _chunks(self, position: Position, last: EntryMetadata) -> list[tuple[Position, EntryMetadata]]:
        """The entries of a large message, of which `last` is the last one; none if the first ones are lost."""
        ledgers, found = self._admin.ledgers(self._range.partition).ledgers, []
        for candidate in backwards(spans_between(ledgers, BEGINNING, position)):
            entry = self._admin.entry(self._range.partition, candidate)
            if entry and entry.uuid == last.uuid:
                found.append((candidate, entry))
                if entry.chunk == 0:
                    return found[::-1]
        if self._options.fail_on_data_loss:
            raise PulsarSourceError(
                f"{self._range}: the broker has deleted the first chunks of the message at {position}; "
                "failOnDataLoss=false goes on"
            )
        return []

    def _take_chunked(self, chunks: Sequence[tuple[Position, EntryMetadata]]) -> None:
        """Read one large message from its first chunk on. It belongs to the range of its last chunk."""
        (first, _), (position, _) = chunks[0], chunks[-1]
        reader = self._open(Position(first.ledger, first.entry - 1))
        message = next(each for each in self._messages(reader, may_end=lambda: False) if _position(each) >= position)
        reader.close()
        if _position(message) != position:
            raise PulsarSourceError(f"{self._range}: the message at {position} did not arrive")
        self._take_entry(message, iter(()))

    def _take_sealed(self, position: Position, sealed: "Sealed") -> None:
        """Add the messages of an encrypted entry."""
        opened = sealed.opened(self._private_keys)
        written = sealed.publish_time, sealed.producer, sealed.schema_version
        self._rows.entries.append((position, len(opened), opened[0].batch_index, *written))
        self._rows.messages += [(each.key, each.payload, each.properties, each.event_time) for each in opened]
        self._rows.bytes += len(sealed.payload)

    @cached_property
    def _key_reader(self) -> pulsar.CryptoKeyReader | None:
        """The client decrypts with one key of RSA, which the first entry decides. It is fast, and the rest is not."""
        files, span = self._options.decryption_keys, self._range.spans[0]
        if not files:
            return None
        first = None if self._range.compacted_before else self._entry(Position(span.ledger, span.first))
        names = _encryption().Sealed.of(*first.sealed).encryption.key_names if first and first.sealed else []
        file = next(files[name] for name in [*names, *files] if name in files)
        return pulsar.CryptoKeyReader("", str(file))

    @cached_property
    def _private_keys(self) -> "dict[str, PrivateKey]":
        try:
            keys: dict[str, PrivateKey] = _encryption().load_keys(self._options.decryption_keys)
        except ValueError as error:
            raise PulsarSourceError(f"option decryptionKeys: {error}") from error
        return keys


def _encryption() -> ModuleType:
    """The module `encryption`, late: it loads a large library that few topics need."""
    from . import encryption

    return encryption


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


def _properties(properties: Sequence[Mapping[str, str]]) -> pa.Array:
    if not any(properties):
        return pa.MapArray.from_arrays(np.zeros(len(properties) + 1, np.int32), [], [])
    return pa.array([list(each.items()) for each in properties], PROPERTIES)
