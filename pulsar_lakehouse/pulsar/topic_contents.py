"""What is in topics that nobody has declared: their schemas, and some of their messages."""

import re
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import islice
from typing import Any, NamedTuple

import pulsar

from pulsar_lakehouse.errors import ConfigurationError
from pulsar_lakehouse.pulsar.endpoint import Endpoint, call_admin, connected
from pulsar_lakehouse.settings import Settings

SAMPLE = 1_000
"""About how many messages of a topic are read."""
READ_TIMEOUT = 10_000
"""Milliseconds."""
PARTITION = re.compile(r"-partition-\d+$")


class Sampled(NamedTuple):
    key: str | None
    payload: bytes | None
    """None is a tombstone."""


@dataclass(frozen=True, kw_only=True)
class Contents:
    topic: str
    schema: dict[str, Any] | None
    """The newest registered schema, as the admin API returns it."""
    sample: tuple[Sampled, ...]
    """The oldest messages of the topic."""


def contents_of_topics(names: Sequence[str], endpoint: Endpoint, settings: Settings) -> list[Contents]:
    """What is in the topics of the namespace, or in those with these names.

    Nothing is acknowledged, and no subscription stays. Raises ConfigurationError for a name that is not there or a
    namespace without topics, and BrokerError if the broker does not answer.
    """
    there = topic_names(endpoint, settings)
    for name in names:
        if name not in there:
            raise ConfigurationError(
                f"{name}: no topic of {settings.pulsar.namespace}; there are {', '.join(there) or 'none'}"
            )
    if not there:
        raise ConfigurationError(f"pulsar.namespace: {settings.pulsar.namespace}: has no topics")
    with connected(endpoint, settings) as client:
        return [
            Contents(topic=name, schema=_schema(name, endpoint, settings), sample=_sample(name, client, settings))
            for name in dict.fromkeys(names or there)
        ]


def topic_names(endpoint: Endpoint, settings: Settings) -> list[str]:
    """The topics of the namespace, in order, without Pulsar's own. A topic with partitions is one."""
    path = f"persistent/{settings.pulsar.namespace}"
    listed = [call_admin("GET", each, endpoint, settings).json() for each in (path, f"{path}/partitioned")]
    names = {PARTITION.sub("", name).rpartition("/")[2] for found in listed for name in found}
    return sorted(name for name in names if not name.startswith("__"))


def _schema(name: str, endpoint: Endpoint, settings: Settings) -> dict[str, Any] | None:
    path = f"schemas/{settings.pulsar.namespace}/{name}/schema"
    response = call_admin("GET", path, endpoint, settings, accept=(404,))
    found: dict[str, Any] | None = response.json() if response.ok else None
    return found


def _sample(name: str, client: pulsar.Client, settings: Settings) -> tuple[Sampled, ...]:
    partitions = client.get_topic_partitions(f"persistent://{settings.pulsar.namespace}/{name}")
    share = -(-SAMPLE // len(partitions))
    return tuple(message for each in partitions for message in islice(_messages(each, client), share))


def _messages(partition: str, client: pulsar.Client) -> Iterator[Sampled]:
    with closing(client.create_reader(partition, pulsar.MessageId.earliest)) as reader:
        while reader.has_message_available():
            message = reader.read_next(READ_TIMEOUT)
            yield Sampled(message.partition_key() or None, None if message.has_null_value() else message.data())
