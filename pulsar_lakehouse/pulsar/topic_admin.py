"""Creates topics in the broker, as they are declared."""

from collections.abc import Iterable

import obstore

from pulsar_lakehouse.contracts.registered import differences
from pulsar_lakehouse.contracts.topics import Encoding, Topic
from pulsar_lakehouse.errors import BrokerError, RefusedError, UnreachableError
from pulsar_lakehouse.progress import CONSOLE
from pulsar_lakehouse.pulsar.endpoint import Endpoint, admin_path, call_admin
from pulsar_lakehouse.pulsar.registered_schemas import newest_schema
from pulsar_lakehouse.pulsar.topic_names import topics_in_pulsar
from pulsar_lakehouse.settings import Settings
from pulsar_lakehouse.storage import folder

EARLIEST = {"ledgerId": -1, "entryId": -1, "partitionIndex": -1}
EXISTS = INCOMPATIBLE = 409
INVALID = 422
MISSING = UNPARTITIONED = 404
MADE = (Encoding.JSON, Encoding.AVRO)
"""The encodings whose schema is made from the declared fields. Producers register others."""
FOR_EVER = {"retentionTimeInMinutes": -1, "retentionSizeInMB": -1}


def create_topics(topics: Iterable[Topic], endpoint: Endpoint, settings: Settings) -> None:
    """Create what is missing: tenant, namespace, and topics with their partitions, schemas and subscriptions.

    A topic that exists keeps its messages and its number of partitions. It gets the declared schema and retention, and
    partitions that were deleted are created again. A registered schema of another type stays, and so does one that
    refuses the declared one. Messages that have not landed never expire, whatever the policy of the namespace. If the
    bronze table exists, a missing subscription is not created here: landing does that, after it has checked for
    messages that were lost without it. Of a pattern, this concerns the topics that match it now.

    Raises BrokerError after all topics, which says which of them could not be created, and which registered schemas
    can't be read as declared; and RefusedError if the tenant is missing and this token may not create it.
    """
    failures = []
    _create_namespace(settings.pulsar.namespace, endpoint, settings)
    for declared in topics:
        try:
            for topic in topics_in_pulsar(declared, endpoint, settings):
                failures += _create(topic, endpoint, settings)
        except UnreachableError:
            raise
        except BrokerError as error:
            failures.append(f"{declared.name}: {error}")
    if problem := expiry_of_subscriptions(endpoint, settings):
        CONSOLE.say(problem)
    if failures:
        raise BrokerError("; ".join(failures))


def _create(topic: Topic, endpoint: Endpoint, settings: Settings) -> list[str]:
    """Create a topic; returns why it could not be, or how its schema differs. Raises UnreachableError."""
    try:
        _create_topic(topic, endpoint, settings)
        return [f"{topic.name}: {line}" for line in _register(topic, endpoint, settings)]
    except UnreachableError:
        raise
    except BrokerError as error:
        return [f"{topic.name}: {error}"]


def _create_topic(topic: Topic, endpoint: Endpoint, settings: Settings) -> None:
    """Create all of a topic but its schema."""
    name = topic.full_name(settings.pulsar.namespace)
    path, namespace = admin_path(name), name.removeprefix("persistent://").rpartition("/")[0]
    if namespace != settings.pulsar.namespace:
        _create_namespace(namespace, endpoint, settings)
    call_admin("PUT", f"{path}/partitions", endpoint, settings, body=settings.pulsar.partitions, accept=(EXISTS,))
    call_admin("POST", f"{path}/createMissedPartitions", endpoint, settings, accept=(UNPARTITIONED,))
    table = folder(settings, settings.table_path(topic.bronze_table))
    if "_delta_log" not in obstore.list_with_delimiter(table)["common_prefixes"]:
        subscription = f"{path}/subscription/{topic.subscription}"
        call_admin("PUT", subscription, endpoint, settings, body=EARLIEST, accept=(EXISTS,))
    # Otherwise, messages that have not landed could expire. 0 means never, whatever the policy of the namespace.
    call_admin("POST", f"{path}/messageTTL?messageTTL=0", endpoint, settings)
    if topic.changelog:
        call_admin("POST", f"{path}/retention", endpoint, settings, body=FOR_EVER)


def _register(topic: Topic, endpoint: Endpoint, settings: Settings) -> list[str]:
    """Register the declared schema, unless the topic keeps its own. Returns how that differs from what is declared."""
    name = topic.full_name(settings.pulsar.namespace)
    if topic.where:  # one schema can't be that of all kinds
        return []
    registered = newest_schema(name, endpoint, settings)
    if topic.encoding in MADE and not topic.envelope and (registered is None or registered.type == topic.encoding):
        schema = {"type": topic.encoding, "schema": topic.pulsar_schema(), "properties": {}}
        path, kept = f"{admin_path(name, 'schemas')}/schema", () if registered is None else (INCOMPATIBLE, INVALID)
        if call_admin("POST", path, endpoint, settings, body=schema, accept=kept).ok:
            return []
    return [] if registered is None else differences(topic, registered)


def expiry_of_subscriptions(endpoint: Endpoint, settings: Settings) -> str | None:
    """What is wrong if the broker deletes subscriptions that are idle, as ours are between runs; None if it doesn't.

    Raises UnreachableError if no broker answers.
    """
    namespace = settings.pulsar.namespace
    try:
        path = f"namespaces/{namespace}/subscriptionExpirationTime"
        minutes = call_admin("GET", path, endpoint, settings, accept=(MISSING,))
        found = minutes.json() if minutes.ok and minutes.text else None
        if found is None:
            broker = call_admin("GET", "brokers/configuration/runtime", endpoint, settings).json()
            found = int(broker.get("subscriptionExpirationTimeMinutes", 0))
    except UnreachableError:
        raise
    except BrokerError:  # this role may not ask
        return None
    if not found:
        return None
    never = f"`pulsar-admin namespaces set-subscription-expiration-time {namespace} --time 0`"
    what = f"the broker deletes subscriptions that are idle for {found} minutes, and then what has not landed"
    return f"{namespace}: {what}: let an administrator run {never}"


def create_published(names: Iterable[str], endpoint: Endpoint, settings: Settings) -> None:
    """Create the topics to which gold is published: changelogs that are kept forever and deduplicated by the broker.

    Their schema is that of the gold table, so publishing registers it.
    """
    _create_namespace(settings.pulsar.namespace, endpoint, settings)
    for name in names:
        path = f"persistent/{settings.pulsar.namespace}/{name}"
        call_admin("PUT", f"{path}/partitions", endpoint, settings, body=settings.pulsar.partitions, accept=(EXISTS,))
        call_admin("POST", f"{path}/retention", endpoint, settings, body=FOR_EVER)
        call_admin("POST", f"{path}/deduplicationEnabled", endpoint, settings, body=True)


def request_compaction(name: str, endpoint: Endpoint, settings: Settings) -> None:
    """Ask the broker to compact a topic: readers of its compacted view then get only the last message of each key."""
    path = f"persistent/{settings.pulsar.namespace}/{name}/compaction"
    call_admin("PUT", path, endpoint, settings, accept=(EXISTS,))  # one that runs already


def _create_namespace(namespace: str, endpoint: Endpoint, settings: Settings) -> None:
    path = f"namespaces/{namespace}"
    if call_admin("PUT", path, endpoint, settings, accept=(EXISTS, MISSING)).status_code == MISSING:
        _create_tenant(namespace.partition("/")[0], endpoint, settings)
        call_admin("PUT", path, endpoint, settings, accept=(EXISTS,))


def _create_tenant(tenant: str, endpoint: Endpoint, settings: Settings) -> None:
    """Create the tenant, which only an administrator of Pulsar may do."""
    try:
        cluster = call_admin("GET", "brokers/configuration/runtime", endpoint, settings).json()["clusterName"]
        allowed = {"adminRoles": [], "allowedClusters": [cluster]}
        call_admin("PUT", f"tenants/{tenant}", endpoint, settings, body=allowed, accept=(EXISTS,))
    except RefusedError as error:
        raise RefusedError(
            f"Pulsar has no tenant {tenant}, and this token may not create it: let an administrator run "
            f"`pulsar-admin tenants create {tenant} --admin-roles ROLE`, with the role of this token"
        ) from error
