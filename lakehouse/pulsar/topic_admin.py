"""Creates topics in the broker, with all that their declarations promise."""

from collections.abc import Iterable
from pathlib import Path

from lakehouse.contracts.topics import Topic
from lakehouse.pulsar.endpoint import Endpoint, call_admin
from lakehouse.settings import Settings

EARLIEST = {"ledgerId": -1, "entryId": -1, "partitionIndex": -1}
EXISTS = 409
UNPARTITIONED = 404
FOR_EVER = {"retentionTimeInMinutes": -1, "retentionSizeInMB": -1}


def create_topics(topics: Iterable[Topic], endpoint: Endpoint, settings: Settings) -> None:
    """Create what is missing: the namespace, the topics with their partitions, schemas, retention, subscriptions.

    A topic that exists keeps its messages and its number of partitions; its schema and retention become those that
    are declared; a partition that was deleted is made again. Messages that have not landed do not expire, whatever the
    namespace says. Once there is a bronze table, only landing makes a subscription that is missing, after it has looked
    for messages that are lost without it.

    Raises BrokerError, also if the broker finds the schemas incompatible.
    """
    call_admin("PUT", f"namespaces/{settings.pulsar.namespace}", endpoint, settings, accept=(EXISTS,))
    for topic in topics:
        _create(topic, endpoint, settings)


def create_published(names: Iterable[str], endpoint: Endpoint, settings: Settings) -> None:
    """Create the topics that gold is published to: kept for ever, as changelogs, and de-duplicated by the broker.

    Their schema is registered when they are published to, as it is that of the gold table.
    """
    call_admin("PUT", f"namespaces/{settings.pulsar.namespace}", endpoint, settings, accept=(EXISTS,))
    for name in names:
        path = f"persistent/{settings.pulsar.namespace}/{name}"
        call_admin("PUT", f"{path}/partitions", endpoint, settings, body=settings.pulsar.partitions, accept=(EXISTS,))
        call_admin("POST", f"{path}/retention", endpoint, settings, body=FOR_EVER)
        call_admin("POST", f"{path}/deduplicationEnabled", endpoint, settings, body=True)


def _create(topic: Topic, endpoint: Endpoint, settings: Settings) -> None:
    name = f"{settings.pulsar.namespace}/{topic.name}"
    path = f"persistent/{name}"
    call_admin("PUT", f"{path}/partitions", endpoint, settings, body=settings.pulsar.partitions, accept=(EXISTS,))
    call_admin("POST", f"{path}/createMissedPartitions", endpoint, settings, accept=(UNPARTITIONED,))
    schema = {"type": topic.encoding, "schema": topic.pulsar_schema(), "properties": {}}
    call_admin("POST", f"schemas/{name}/schema", endpoint, settings, body=schema)
    if not Path(settings.table_path(topic.bronze_table), "_delta_log").exists():
        subscription = f"{path}/subscription/{topic.subscription}"
        call_admin("PUT", subscription, endpoint, settings, body=EARLIEST, accept=(EXISTS,))
    # The broker would let messages go that have not landed; 0 is for ever, whatever the namespace says.
    call_admin("POST", f"{path}/messageTTL?messageTTL=0", endpoint, settings)
    if topic.changelog:
        call_admin("POST", f"{path}/retention", endpoint, settings, body=FOR_EVER)
