"""The partitions of a topic: what the broker holds of them, and their creation times, which a bronze table keeps."""

import json
import re
from collections.abc import Mapping

from pulsar_lakehouse.bronze.pulsar.admin import Held
from pulsar_lakehouse.bronze.pulsar.options import NoAnswerError, Options, PulsarSourceError
from pulsar_lakehouse.bronze.pulsar.planning import Plan
from pulsar_lakehouse.contracts.topics import Topic
from pulsar_lakehouse.errors import PermanentError, UnreachableError
from pulsar_lakehouse.pulsar.endpoint import Endpoint
from pulsar_lakehouse.settings import Settings
from pulsar_lakehouse.spark.error_causes import cause_of

CREATED = "lakehouse.partitions"
"""The table property with the creation time of each partition, as JSON. It shows whether a topic was recreated."""


def source_options(settings: Settings, endpoint: Endpoint, topic: Topic) -> dict[str, str]:
    """The options of the Pulsar source: how to reach the broker, and what to read."""
    keys = {name: str(file) for name, file in settings.pulsar.decryption_keys.items()}
    read = {"topic": topic.full_name(settings.pulsar.namespace), "subscription": topic.subscription}
    return endpoint.cluster(settings).options() | read | ({"decryptionKeys": json.dumps(keys)} if keys else {})


def ask_broker(source: Mapping[str, str]) -> Plan:
    """A plan with what the broker holds of each partition that the options of a source name.

    Raises UnreachableError if the broker does not answer, and PermanentError if it refuses or has no such topic.
    """
    try:
        return Plan(Options.parse(source), dated=True)
    except NoAnswerError as error:
        raise UnreachableError(cause_of(error)) from error
    except PulsarSourceError as error:
        raise PermanentError(cause_of(error)) from error


def held_by(plan: Plan) -> dict[str, Held]:
    """What the broker held of each partition when the plan was made, by the name that bronze uses."""
    return {partition_in_bronze(name): held for name, held in plan.held.items()}


def partition_in_bronze(partition: str) -> str:
    """A partition's name in bronze, where a topic without partitions has the partition 0."""
    return partition if re.search(r"-partition-\d+$", partition) else f"{partition}-partition-0"


def creation_times(held: Mapping[str, Held]) -> dict[str, str]:
    return {name: each.created for name, each in held.items() if each.created}
