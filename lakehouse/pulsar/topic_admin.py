"""Creates topics in the broker, as they are declared."""

from collections.abc import Iterable

import obstore

from lakehouse.contracts.topics import Topic
from lakehouse.pulsar.endpoint import Endpoint, call_admin
from lakehouse.settings import Settings
from lakehouse.storage import folder

EARLIEST = {"ledgerId": -1, "entryId": -1, "partitionIndex": -1}
EXISTS = 409
UNPARTITIONED = 404
FOR_EVER = {"retentionTimeInMinutes": -1, "retentionSizeInMB": -1}


def create_topics(topics: Iterable[Topic], endpoint: Endpoint, settings: Settings) -> None:
    """Create what is missing: the namespace, and the topics with partitions, schemas, retention and subscriptions.

    A topic that exists keeps its messages and its number of partitions. It gets the declared schema and retention, and
    partitions that were deleted are created again. Messages that have not landed never expire, whatever the policy of
    the namespace. If the bronze table exists, a missing subscription is not created here: landing does that, after it
    has checked for messages that were lost without it.

    Raises BrokerError, also if a schema is incompatible with the registered one.
    """
    call_admin("PUT", f"namespaces/{settings.pulsar.namespace}", endpoint, settings, accept=(EXISTS,))
    for topic in topics:
        _create(topic, endpoint, settings)


def create_published(names: Iterable[str], endpoint: Endpoint, settings: Settings) -> None:
    """Create the topics to which gold is published: changelogs that are kept forever and deduplicated by the broker.

    Their schema is that of the gold table, so publishing registers it.
    """
    call_admin("PUT", f"namespaces/{settings.pulsar.namespace}", endpoint, settings, accept=(EXISTS,))
    for name in names:
        path = f"persistent/{settings.pulsar.namespace}/{name}"
        call_admin("PUT", f"{path}/partitions", endpoint, settings, body=settings.pulsar.partitions, accept=(EXISTS,))
        call_admin("POST", f"{path}/retention", endpoint, settings, body=FOR_EVER)
        call_admin("POST", f"{path}/deduplicationEnabled", endpoint, settings, body=True)


def request_compaction(name: str, endpoint: Endpoint, settings: Settings) -> None:
    """Ask the broker to compact a topic: readers of its compacted view then get only the last message of each key."""
    path = f"persistent/{settings.pulsar.namespace}/{name}/compaction"
    call_admin("PUT", path, endpoint, settings, accept=(EXISTS,))  # one that runs already


def _create(topic: Topic, endpoint: Endpoint, settings: Settings) -> None:
    name = f"{settings.pulsar.namespace}/{topic.name}"
    path = f"persistent/{name}"
    call_admin("PUT", f"{path}/partitions", endpoint, settings, body=settings.pulsar.partitions, accept=(EXISTS,))
    call_admin("POST", f"{path}/createMissedPartitions", endpoint, settings, accept=(UNPARTITIONED,))
    schema = {"type": topic.encoding, "schema": topic.pulsar_schema(), "properties": {}}
    call_admin("POST", f"schemas/{name}/schema", endpoint, settings, body=schema)
    if not _has_landed(settings, topic):
        subscription = f"{path}/subscription/{topic.subscription}"
        call_admin("PUT", subscription, endpoint, settings, body=EARLIEST, accept=(EXISTS,))
    # Otherwise, messages that have not landed could expire. 0 means never, whatever the policy of the namespace.
    call_admin("POST", f"{path}/messageTTL?messageTTL=0", endpoint, settings)
    if topic.changelog:
        call_admin("POST", f"{path}/retention", endpoint, settings, body=FOR_EVER)


def _has_landed(settings: Settings, topic: Topic) -> bool:
    table = folder(settings, settings.table_path(topic.bronze_table))
    return "_delta_log" in obstore.list_with_delimiter(table)["common_prefixes"]
