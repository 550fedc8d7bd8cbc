"""Sends messages to topics as fast as one process can, and counts the acknowledgements of the broker."""

import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from itertools import islice
from queue import SimpleQueue
from typing import NamedTuple

import pulsar
from _pulsar import SchemaInfo, SchemaType
from pulsar.schema import BytesSchema, Schema
from rich.progress import Progress, ProgressColumn, SpinnerColumn, Task, TextColumn, TimeElapsedColumn
from rich.text import Text

from pulsar_lakehouse.contracts.topics import Topic
from pulsar_lakehouse.errors import BrokerError, ConfigurationError
from pulsar_lakehouse.progress import CONSOLE
from pulsar_lakehouse.pulsar.endpoint import NO_SUCH_TOPIC, Endpoint, admin_path, call_admin, connected
from pulsar_lakehouse.settings import Settings

BATCH = 10_000
"""Messages that are sent before the acknowledgements are checked."""
PACED_BATCHES = 20
"""Batches per second, if there is a rate."""
PENDING = 20_000
"""Unacknowledged messages per partition at which sending waits."""
BATCH_BYTES = 256 * 1024
BATCHED = {
    "batching_enabled": True,
    "batching_max_messages": 1_000,
    "batching_max_allowed_size_in_bytes": BATCH_BYTES,
    "batching_max_publish_delay_ms": 10,
}
"""The options of a producer that packs messages into entries."""


class MessageSchema(NamedTuple):
    """A schema that messages are written with."""

    type: str
    """As Pulsar's admin API names it, such as AVRO or KEY_VALUE."""
    data: str = ""
    """Its text, as the admin API takes it: for AVRO and JSON, an Avro record."""
    properties: tuple[tuple[str, str], ...] = ()


NOT_SENT = "KEY_VALUE"
"""The schema type with which the Python client, in C++ below, breaks down."""
NO_SCHEMA = MessageSchema("BYTES")
WITH_TEXT = "JSON", "AVRO"
"""The schema types for which a topic's declaration has the text."""


def own_schema(topic: Topic) -> MessageSchema:
    """The schema that `lakehouse topics create` registers for the topic; none if its fields do not tell it."""
    if topic.where:  # one schema can't be that of all kinds
        return NO_SCHEMA
    if topic.encoding in WITH_TEXT and not topic.envelope:
        return MessageSchema(topic.encoding, topic.pulsar_schema())
    return MessageSchema("STRING") if topic.encoding == "STRING" else NO_SCHEMA


class Encoded(Schema):  # type: ignore[misc]
    """A registered schema, for payloads that are already encoded."""

    def __init__(self, schema: MessageSchema, record: str) -> None:
        self._schema_info = SchemaInfo(SchemaType.__members__[schema.type], record, schema.data)

    def encode(self, payload: bytes) -> bytes:
        return payload


class Message(NamedTuple):
    key: str
    """Empty for none. A key of bytes is their base64 text, as all clients show it."""
    payload: bytes | None
    """None is a tombstone."""
    event_time: int
    """Epoch milliseconds; 0 for none."""
    properties: Mapping[str, str] | None = None
    schema: MessageSchema | None = None
    """The schema that it is sent with; None for the topic's own."""

    @property
    def broken(self) -> bool:
        """Whether it may be anything, as it is sent without a schema."""
        return self.schema == NO_SCHEMA


Streams = Iterable[tuple[Topic, Iterable[Message]]]


class Speed(ProgressColumn):
    """Messages per second, over the whole run."""

    def render(self, task: Task) -> Text:
        return Text(f"{task.completed / (task.elapsed or 1):,.0f}/s")


def produce(streams: Streams, endpoint: Endpoint, settings: Settings, *, rate: float | None = None) -> dict[str, int]:
    """Send the streams to their topics, one after the other. Returns the number of acknowledged messages by topic.

    All messages of a key go to the same partition. `rate` is in messages per second; None means as fast as possible.
    Ctrl-C ends even an endless stream, after the messages that were sent are acknowledged.
    Raises BrokerError if a topic does not exist, or if messages were not acknowledged; it says how many and why.
    """
    acknowledged: Counter[str] = Counter()
    columns = SpinnerColumn(), TextColumn("{task.description}"), TextColumn("{task.completed:,.0f} messages"), Speed()
    with (
        connected(endpoint, settings) as client,
        Progress(*columns, TimeElapsedColumn(), console=CONSOLE) as progress,
    ):
        for topic, messages in streams:
            sender = Sender(client, topic, endpoint, settings)
            bar = progress.add_task(topic.name, total=None)
            try:
                for batch in _batches(messages, rate):
                    sender.send(batch)
                    progress.update(bar, completed=sender.sent)
            finally:
                acknowledged[topic.name] += sender.close()
                progress.update(bar, total=sender.sent, completed=sender.sent)
    return dict(acknowledged)


class Sender:
    """Sends to one topic and accounts for every message: it is acknowledged, or it counts as failed."""

    def __init__(self, client: pulsar.Client, topic: Topic, endpoint: Endpoint, settings: Settings) -> None:
        self.sent = 0
        self._topic, self._client, self._endpoint, self._settings = topic, client, endpoint, settings
        # The client calls back for each message. A callback in C costs half as much as one in Python. The method of a
        # queue can serve as one: `put(result, message_id)` stores the result, and ignores its second argument, `block`.
        self._results: SimpleQueue[pulsar.Result] = SimpleQueue()
        self._settled: Counter[pulsar.Result] = Counter()
        self._producers: dict[MessageSchema | None, pulsar.Producer] = {}

    def _producer(self, schema: MessageSchema | None) -> pulsar.Producer:
        """A producer with this schema, which is registered if it is new; with None, the topic's own."""
        if schema not in self._producers:
            if schema and schema.type == NOT_SENT:
                raise ConfigurationError(f"schema: type: {NOT_SENT}: this client can't send it; tests can use it")
            name, full_name = self._topic.name, self._topic.full_name(self._settings.pulsar.namespace)
            written = schema or own_schema(self._topic)
            try:
                if written.properties:  # the client can't say them
                    _register(full_name, written, self._endpoint, self._settings)
                how = BytesSchema() if written == NO_SCHEMA else Encoded(written, self._topic.record)
                self._producers[schema] = _producer(self._client, full_name, how)
            except pulsar.TopicNotFound as error:
                raise BrokerError(f"{name}: {NO_SUCH_TOPIC}") from error
            except pulsar.IncompatibleSchema as error:
                raise BrokerError(f"{name}: the broker refuses the schema {written.type} {written.data}") from error
        return self._producers[schema]

    def send(self, messages: Iterable[Message]) -> None:
        """Pass messages to the client. Raises BrokerError if an earlier one is known to have failed."""
        settle = self._results.put
        producers = self._producers
        for key, payload, event_time, properties, schema in messages:
            producer = producers.get(schema) or self._producer(schema)
            producer.send_async(payload, settle, properties, key, event_timestamp=event_time)
            self.sent += 1
        self._settle(self._results.qsize())
        self._check()

    def close(self) -> int:
        """Wait for all acknowledgements and return their number. Raises BrokerError if messages failed."""
        for producer in self._producers.values():
            with suppress(pulsar.PulsarException):  # each message has its own result
                producer.flush()
        self._settle(self.sent - self._settled.total())
        self._check()
        for producer in self._producers.values():
            producer.close()
        return self.sent

    def _settle(self, count: int) -> None:
        self._settled.update([self._results.get() for _ in range(count)])

    def _check(self) -> None:
        failed = {result: count for result, count in self._settled.items() if result != pulsar.Result.Ok}
        if failed:
            reasons = ", ".join(f"{count:,} {result.name}" for result, count in failed.items())
            raise BrokerError(f"{self._topic.name}: not all {self.sent:,} messages were acknowledged: {reasons}")


def _register(name: str, schema: MessageSchema, endpoint: Endpoint, settings: Settings) -> None:
    """Register a schema with its properties, before a producer with the same text finds it."""
    body = {"type": schema.type, "schema": schema.data, "properties": dict(schema.properties)}
    call_admin("POST", f"{admin_path(name, 'schemas')}/schema", endpoint, settings, body=body)


def _producer(client: pulsar.Client, topic: str, schema: Schema) -> pulsar.Producer:
    return client.create_producer(
        topic,
        schema=schema,
        block_if_queue_full=True,
        max_pending_messages=PENDING,
        max_pending_messages_across_partitions=10 * PENDING,
        **BATCHED,
    )


def _batches(messages: Iterable[Message], rate: float | None) -> Iterator[list[Message]]:
    """The messages in batches; with a `rate`, each one is yielded when it is due."""
    remaining, begin, taken = iter(messages), time.monotonic(), 0
    size = max(1, int(rate / PACED_BATCHES)) if rate else BATCH
    while batch := list(islice(remaining, size)):
        if rate:
            time.sleep(max(0.0, begin + taken / rate - time.monotonic()))
        taken += len(batch)
        yield batch
