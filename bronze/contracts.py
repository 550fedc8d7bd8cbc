"""Compare the declared contracts of topics with the schemas that are registered in Pulsar."""

import json
from collections.abc import Iterable, Mapping
from typing import Any

from lakehouse.contracts.topics import AVRO_TYPES, Encoding, Topic
from lakehouse.errors import ConfigurationError
from lakehouse.progress import CONSOLE
from lakehouse.pulsar.endpoint import Endpoint, call_admin
from lakehouse.settings import Settings

AVRO = {
    "boolean": frozenset({"boolean"}),
    "double": frozenset({"int", "long", "float", "double"}),
    "int": frozenset({"int"}),
    "long": frozenset({"int", "long"}),
    "string": frozenset({"string"}),
}
READABLE: Mapping[Encoding, Mapping[str, frozenset[str]]] = {
    Encoding.AVRO: AVRO,
    Encoding.JSON: {**AVRO, "string": frozenset({"string", "enum"})},
}
"""By encoding and declared type: the registered Avro types that can be read as that type."""

Fields = Mapping[str, tuple[str, ...]]
"""The fields of a registered schema. Each has the Avro types that its values can have."""


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
        fields = fields_of(newest[0]["data"])
        if fields and (problems := differences(topic, fields)):
            raise ConfigurationError(f"{topic.name}: {'; '.join(problems)}")
        if ignored := fields.keys() - set(topic.fields.names):
            CONSOLE.say(f"{topic.name}: registered, but not declared: {', '.join(sorted(ignored))}")


def registered_schemas(topic: Topic, endpoint: Endpoint, settings: Settings) -> list[dict[str, Any]]:
    """All schemas of a topic as the admin API returns them, oldest first."""
    path = f"schemas/{settings.pulsar.namespace}/{topic.name}/schemas"
    schemas: list[dict[str, Any]] = call_admin("GET", path, endpoint, settings).json()["getSchemaResponses"]
    return schemas


def fields_of(schema: str) -> Fields:
    """The fields of an Avro record. Empty for schemas of old clients, which are not records."""
    return {field["name"]: tuple(_types(field["type"])) for field in json.loads(schema).get("fields", ())}


def differences(topic: Topic, registered: Fields) -> list[str]:
    """Why messages of the registered schema break the topic's contract: one line for each field that differs."""
    found = []
    for field in topic.fields:
        declared = AVRO_TYPES[type(field.dataType)]
        types = registered.get(field.name)
        if types is None and not field.nullable:
            found.append(f"{field.name} is not registered, but declared as a required {declared}")
        elif types is not None and not READABLE[topic.encoding][declared] | {"null"} >= set(types):
            found.append(f"{field.name} is registered as {' or '.join(types)}, but declared as {declared}")
    return found


def _types(kind: Any) -> list[str]:
    match kind:
        case list():
            return [name for each in kind for name in _types(each)]
        case {"type": inner}:
            return _types(inner)
    return [kind]
