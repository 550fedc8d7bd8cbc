"""Asks the broker how many messages a topic has, and how many have not landed."""

import time
from collections.abc import Sequence
from dataclasses import dataclass

from pulsar_lakehouse.contracts.topics import Topic
from pulsar_lakehouse.errors import BrokerError
from pulsar_lakehouse.pulsar.endpoint import Endpoint, call_admin
from pulsar_lakehouse.settings import Settings

STATISTICS = "perPartition=true&getPreciseBacklog=true&getEarliestTimeInBacklog=true"


@dataclass(frozen=True, kw_only=True)
class TopicStatus:
    name: str
    messages: int
    """Messages that the broker acknowledged since it started, including those that it has deleted since."""
    backlog: int
    """Entries that have not landed. An entry is a message or a batch of messages."""
    backlog_bytes: int
    """About how many stored bytes these are, or more, if another subscription is further behind."""
    lag_seconds: float | None
    """The age of the oldest of these entries; 0 if there are none, None if the broker does not say."""


def topic_status(topic: Topic, endpoint: Endpoint, settings: Settings) -> TopicStatus:
    """Raises BrokerError if the topic does not exist, and UnreachableError if the broker does not answer."""
    path = f"persistent/{settings.pulsar.namespace}/{topic.name}"
    parted = call_admin("GET", f"{path}/partitions", endpoint, settings, accept=(404,))
    kind = "partitioned-stats" if parted.ok and parted.json()["partitions"] else "stats"
    found = call_admin("GET", f"{path}/{kind}?{STATISTICS}", endpoint, settings, accept=(404,))
    if found.status_code == 404:
        raise BrokerError(f"{topic.name}: no such topic: `lakehouse topics create` makes the declared ones")
    stats = found.json()
    parts = stats["partitions"].values() if kind == "partitioned-stats" else [stats]
    backlog, size, times = 0, 0, []
    for part in parts:
        cursor = part["subscriptions"].get(topic.subscription, {})
        backlog += cursor.get("msgBacklog", part["msgInCounter"])  # without a subscription, nothing has landed
        size += part["backlogSize"] if cursor else part["storageSize"]
        times.append(cursor.get("earliestMsgPublishTimeInBacklog", 0))  # 0 or -1 if there is none
    lag = _age([time for time in times if time > 0]) if backlog else 0.0
    return TopicStatus(
        name=topic.name, messages=stats["msgInCounter"], backlog=backlog, backlog_bytes=size, lag_seconds=lag
    )


def _age(times: Sequence[int]) -> float | None:
    """Seconds since the first of these times, which are in milliseconds since 1970; None if there are none."""
    return max(0.0, time.time() - min(times) / 1000) if times else None
