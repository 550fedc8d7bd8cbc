"""What is in topics that nobody has declared: their schemas, and some of their messages."""

from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import islice
from typing import NamedTuple

import pulsar

from pulsar_lakehouse.contracts.registered import KEY, part_of
from pulsar_lakehouse.contracts.schemas import RegisteredSchema
from pulsar_lakehouse.errors import ConfigurationError
from pulsar_lakehouse.pulsar.endpoint import Endpoint, connected
from pulsar_lakehouse.pulsar.publishing import SEQUENCE, SINCE
from pulsar_lakehouse.pulsar.registered_schemas import all_schemas, newest_schema
from pulsar_lakehouse.pulsar.topic_names import topic_names
from pulsar_lakehouse.settings import Settings

SAMPLE = 1_000
"""About how many messages of a topic are read."""
READ_TIMEOUT = 10_000
"""Milliseconds."""


class Sampled(NamedTuple):
    key: str | None
    payload: bytes | None
    """None is a tombstone."""
    is_published: bool = False
    """Whether a lakehouse has published it."""


@dataclass(frozen=True, kw_only=True)
class Contents:
    topic: str
    """Its name within the namespace."""
    schema: RegisteredSchema | None
    """The newest registered schema."""
    sample: tuple[Sampled, ...]
    """The oldest messages of the topic."""
    problem: str = ""
    """Why it can't be read, or not to the end of the sample."""


def contents_of_topics(names: Sequence[str], endpoint: Endpoint, settings: Settings) -> list[Contents]:
    """What is in the topics of the namespace, or in those with these names.

    Nothing is acknowledged, and no subscription stays. Raises ConfigurationError for a name that is not there or a
    namespace without topics, and BrokerError if the broker does not answer.
    """
    there = topic_names(settings.pulsar.namespace, endpoint, settings)
    for name in names:
        if name not in there:
            raise ConfigurationError(
                f"{name}: no topic of {settings.pulsar.namespace}; there are {', '.join(there) or 'none'}"
            )
    if not there:
        raise ConfigurationError(f"pulsar.namespace: {settings.pulsar.namespace}: has no topics")
    with connected(endpoint, settings) as client:
        return [_contents(name, client, endpoint, settings) for name in dict.fromkeys(names or there)]


def _contents(name: str, client: pulsar.Client, endpoint: Endpoint, settings: Settings) -> Contents:
    """What is in one topic. Whatever its messages can't be read for is the `problem`."""
    topic = f"persistent://{settings.pulsar.namespace}/{name}"
    sample, problem = list[Sampled](), ""
    schema = _schema(topic, endpoint, settings)
    try:
        partitions = client.get_topic_partitions(topic)
        for each in partitions:
            sample.extend(islice(_messages(each, client), -(-SAMPLE // len(partitions))))
    except pulsar.PulsarException as error:  # such as of messages that are encrypted
        problem = str(error)
    return Contents(topic=name, schema=schema, sample=tuple(sample), problem=problem)


def _schema(topic: str, endpoint: Endpoint, settings: Settings) -> RegisteredSchema | None:
    """The newest schema. If its messages have no key, as truncations of a database have none, an older one tells it."""
    newest = newest_schema(topic, endpoint, settings)
    if newest is None or newest.type != "KEY_VALUE" or part_of(newest, KEY).type != "BYTES":
        return newest
    older = reversed(all_schemas(topic, endpoint, settings))
    return next((each for each in older if part_of(each, KEY).type not in ("BYTES", "NONE")), newest)


def _messages(partition: str, client: pulsar.Client) -> Iterator[Sampled]:
    with closing(client.create_reader(partition, pulsar.MessageId.earliest)) as reader:
        while reader.has_message_available():
            message = reader.read_next(READ_TIMEOUT)
            yield Sampled(
                key=message.partition_key() or None,
                payload=None if message.has_null_value() else message.data(),
                is_published=message.properties().keys() == {SEQUENCE, SINCE},
            )
