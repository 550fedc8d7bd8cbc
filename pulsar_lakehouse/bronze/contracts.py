"""Compare the declared contracts of topics with the schemas that are registered in Pulsar."""

from collections.abc import Iterable
from typing import Any

from pulsar_lakehouse.contracts.avro_schemas import Written
from pulsar_lakehouse.contracts.topics import Encoding, Topic
from pulsar_lakehouse.errors import ConfigurationError
from pulsar_lakehouse.progress import CONSOLE
from pulsar_lakehouse.pulsar.endpoint import Endpoint, call_admin
from pulsar_lakehouse.settings import Settings


def check_contracts(topics: Iterable[Topic], endpoint: Endpoint, settings: Settings) -> None:
    """Check each topic's newest registered schema, and print the registered fields that are not declared.

    A topic without a schema can carry anything, so it is not checked. Raises ConfigurationError for the first topic
    that can't be read as it is declared.
    """
    for topic in topics:
        newest = registered_schemas(topic, endpoint, settings)[-1:]
        if not newest or newest[0]["type"] not in list(Encoding):
            continue
        if newest[0]["type"] != topic.encoding:
            raise ConfigurationError(
                f"{topic.name}: registered as {newest[0]['type']}, but declared as {topic.encoding}"
            )
        written = Written(newest[0]["data"])
        if written.names and (problems := written.differences(topic.fields, topic.encoding)):
            raise ConfigurationError(f"{topic.name}: {'; '.join(problems)}")
        if ignored := set(written.names) - set(topic.fields.names):
            CONSOLE.say(f"{topic.name}: registered, but not declared: {', '.join(sorted(ignored))}")


def registered_schemas(topic: Topic, endpoint: Endpoint, settings: Settings) -> list[dict[str, Any]]:
    """All schemas of a topic as the admin API returns them, oldest first."""
    path = f"schemas/{settings.pulsar.namespace}/{topic.name}/schemas"
    schemas: list[dict[str, Any]] = call_admin("GET", path, endpoint, settings).json()["getSchemaResponses"]
    return schemas
