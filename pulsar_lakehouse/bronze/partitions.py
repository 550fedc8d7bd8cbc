"""The partitions of a topic: what the broker holds of them, and their creation times, which a bronze table keeps."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

from pulsar_lakehouse.bronze.pulsar.admin import Held
from pulsar_lakehouse.bronze.pulsar.options import NoAnswerError, Options, PulsarSourceError
from pulsar_lakehouse.bronze.pulsar.planning import Plan
from pulsar_lakehouse.contracts.topics import Topic
from pulsar_lakehouse.errors import LakehouseError, PermanentError, UnreachableError
from pulsar_lakehouse.pulsar.endpoint import Endpoint
from pulsar_lakehouse.pulsar.topic_names import topics_in_pulsar
from pulsar_lakehouse.settings import Settings
from pulsar_lakehouse.spark.error_causes import cause_of

CREATED = "lakehouse.partitions"
"""The table property with the creation time of each partition, as JSON. It shows whether a topic was recreated."""
GONE = "lakehouse.gone"
"""The table property with the full names of topics that were told to be gone, as JSON."""


def source_options(settings: Settings, endpoint: Endpoint, topic: Topic, names: Sequence[str] = ()) -> dict[str, str]:
    """The options of the Pulsar source: how to reach the broker, and what to read: the topics with these full names.

    They can be left out for a topic that is one.
    """
    keys = {name: str(file) for name, file in settings.pulsar.decryption_keys.items()}
    names = names or [topic.full_name(settings.pulsar.namespace)]
    read = {"topic": ",".join(names), "subscription": topic.subscription}
    return endpoint.cluster(settings).options() | read | ({"decryptionKeys": json.dumps(keys)} if keys else {})


def ask_broker(settings: Settings, endpoint: Endpoint, topic: Topic) -> Plan:
    """A plan with what the broker holds of each partition of a topic. Of several topics, it may leave out some.

    Raises UnreachableError if the broker does not answer, and PermanentError if it refuses or has no such topic.
    """
    names = [each.full_name(settings.pulsar.namespace) for each in topics_in_pulsar(topic, endpoint, settings)]
    try:
        options = Options.parse(source_options(settings, endpoint, topic, names[:1] or ["none"]))
        plan = Plan(replace(options, topics=tuple(names)), dated=True, is_partial=topic.is_several)
    except PulsarSourceError as error:
        raise told(error) from error
    for name in plan.options.topics:
        if "," in name:  # parts the names in an option of the source
            plan.leave_out(name, PulsarSourceError(f"{name}: a topic whose name has a comma can't be read"))
    return plan


def told(error: PulsarSourceError) -> LakehouseError:
    """An error of the source as one of this package: UnreachableError if a retry may succeed, else PermanentError."""
    return (UnreachableError if isinstance(error, NoAnswerError) else PermanentError)(cause_of(error))


def held_by(plan: Plan) -> dict[str, Held]:
    """What the broker held of each partition when the plan was made, by the name that bronze uses."""
    return {partition_in_bronze(name): held for name, held in plan.held.items()}


def partition_in_bronze(partition: str) -> str:
    """A partition's name in bronze, where a topic without partitions has the partition 0."""
    return partition if re.search(r"-partition-\d+$", partition) else f"{partition}-partition-0"


def creation_times(held: Mapping[str, Held]) -> dict[str, str]:
    return {name: each.created for name, each in held.items() if each.created}
