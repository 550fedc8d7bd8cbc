"""Which topics of Pulsar a declared topic stands for: the one that it names, several, or those that match a pattern."""

import re
from collections.abc import Iterable
from dataclasses import replace

from pulsar_lakehouse.contracts.topics import SYSTEM, Topic
from pulsar_lakehouse.pulsar.endpoint import Endpoint, call_admin
from pulsar_lakehouse.settings import Settings

PARTITION = re.compile(r"-partition-\d+$")


def topics_in_pulsar(topic: Topic, endpoint: Endpoint, settings: Settings) -> tuple[Topic, ...]:
    """The topics of Pulsar that a declared one stands for, each as a topic with one name.

    Those of a pattern are those that there are now. Only for a pattern the broker is asked: raises BrokerError if it
    does not answer, or refuses.
    """
    if not topic.is_several:
        return (topic,)
    names = topic.own_names
    if isinstance(topic.topic, re.Pattern):
        own = settings.pulsar.namespace
        namespace = "/".join(names[0].split("://")[1].split("/")[:2]) if "://" in names[0] else own
        there = (f"persistent://{namespace}/{each}" for each in topic_names(namespace, endpoint, settings))
        names = tuple(each.removeprefix(f"persistent://{own}/") for each in there if topic.lands(each, own))
    return tuple(replace(topic, topic=name) for name in names)


def by_name(topics: Iterable[Topic]) -> dict[str, Topic]:
    """Each topic by its name: of several that are declared together, each by its own. A pattern has none."""
    named = (each for each in topics if not isinstance(each.topic, re.Pattern))
    return {
        name: replace(each, topic=name) if each.is_several else each
        for each in named
        for name in (each.own_names if each.is_several else (each.name,))
    }


def topic_names(namespace: str, endpoint: Endpoint, settings: Settings) -> list[str]:
    """The topics of the namespace, in order, without Pulsar's own. A topic with partitions is one."""
    path = f"persistent/{namespace}"
    listed = [call_admin("GET", each, endpoint, settings).json() for each in (path, f"{path}/partitioned")]
    names = {PARTITION.sub("", name).rpartition("/")[2] for found in listed for name in found}
    return sorted(name for name in names if not SYSTEM.fullmatch(name))
