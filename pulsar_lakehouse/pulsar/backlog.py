"""Asks the broker how many messages a topic has, and how many have not landed."""

import time
from contextlib import closing
from dataclasses import dataclass, replace

from pulsar_lakehouse.bronze.pulsar.admin import Admin, OpenTransaction
from pulsar_lakehouse.contracts.topics import Topic
from pulsar_lakehouse.errors import BrokerError, UnreachableError
from pulsar_lakehouse.pulsar.endpoint import NO_SUCH_TOPIC, Endpoint, admin_path, call_admin
from pulsar_lakehouse.pulsar.topic_names import topics_in_pulsar
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
    transaction: OpenTransaction | None = None
    """The oldest open transaction, if it holds back entries."""
    parts: tuple["TopicStatus", ...] = ()
    """Of several topics that land in one table, each by its name in Pulsar."""


def topic_status(topic: Topic, endpoint: Endpoint, settings: Settings) -> TopicStatus:
    """Raises BrokerError if the topic does not exist, and UnreachableError if the broker does not answer.

    Of several topics, those of which the broker does not tell are left out. BrokerError if they are all.
    """
    if not topic.is_several:
        return _status_of(topic, endpoint, settings)
    found, failures = list[TopicStatus](), list[BrokerError]()
    for each in topics_in_pulsar(topic, endpoint, settings):
        try:
            found.append(replace(_status_of(each, endpoint, settings), name=each.own_name))
        except UnreachableError:
            raise
        except BrokerError as error:
            failures.append(error)
    if failures and not found:
        raise failures[0]
    lags = [each.lag_seconds for each in found]
    transactions = filter(None, (each.transaction for each in found))
    return TopicStatus(
        name=topic.name,
        messages=sum(each.messages for each in found),
        backlog=sum(each.backlog for each in found),
        backlog_bytes=sum(each.backlog_bytes for each in found),
        lag_seconds=None if None in lags else max((lag or 0.0 for lag in lags), default=0.0),
        transaction=min(transactions, key=lambda each: each.since, default=None),
        parts=tuple(found),
    )


def _status_of(topic: Topic, endpoint: Endpoint, settings: Settings) -> TopicStatus:
    path = admin_path(topic.full_name(settings.pulsar.namespace))
    parted = call_admin("GET", f"{path}/partitions", endpoint, settings, accept=(404,))
    kind = "partitioned-stats" if parted.ok and parted.json()["partitions"] else "stats"
    found = call_admin("GET", f"{path}/{kind}?{STATISTICS}", endpoint, settings, accept=(404,))
    if found.status_code == 404:
        raise BrokerError(f"{topic.name}: {NO_SUCH_TOPIC}")
    stats = found.json()
    backlog, size, oldest, transactions = 0, 0, [], []
    parts = stats["partitions"] if kind == "partitioned-stats" else {path.replace("/", "://", 1): stats}
    for name, part in parts.items():
        cursor = part["subscriptions"].get(topic.subscription, {})
        backlog += cursor.get("msgBacklog", part["msgInCounter"])  # without a subscription, nothing has landed
        size += part["backlogSize"] if cursor else part["storageSize"]
        if (published := cursor.get("earliestMsgPublishTimeInBacklog", 0)) > 0:  # 0 or -1 if there is none
            oldest.append(published / 1000)
        if part.get("ongoingTxnCount"):
            with closing(Admin(endpoint.cluster(settings))) as admin:
                transactions.append(admin.open_transaction(name))
    lag = (max(0.0, time.time() - min(oldest)) if oldest else None) if backlog else 0.0
    return TopicStatus(
        name=topic.name,
        messages=stats["msgInCounter"],
        backlog=backlog,
        backlog_bytes=size,
        lag_seconds=lag,
        transaction=min(filter(None, transactions), key=lambda each: each.since, default=None),
    )
