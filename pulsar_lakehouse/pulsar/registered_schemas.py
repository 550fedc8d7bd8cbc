"""Asks the broker for the schemas that are registered for a topic."""

from typing import Any

from pulsar_lakehouse.contracts.schemas import RegisteredSchema
from pulsar_lakehouse.pulsar.endpoint import Endpoint, admin_path, call_admin
from pulsar_lakehouse.settings import Settings

MISSING = 404


def newest_schema(topic: str, endpoint: Endpoint, settings: Settings) -> RegisteredSchema | None:
    """The newest schema of a topic, by its full name; None if it has none, or if there is no such topic."""
    found = call_admin("GET", f"{admin_path(topic, 'schemas')}/schema", endpoint, settings, accept=(MISSING,))
    return _parsed(found.json()) if found.ok else None


def all_schemas(topic: str, endpoint: Endpoint, settings: Settings) -> list[RegisteredSchema]:
    """All schemas of a topic, by its full name, but for deleted ones; oldest first."""
    found = call_admin("GET", f"{admin_path(topic, 'schemas')}/schemas", endpoint, settings)
    return [_parsed(each) for each in found.json()["getSchemaResponses"]]


def _parsed(told: dict[str, Any]) -> RegisteredSchema:
    return RegisteredSchema(
        version=told["version"],
        type=told["type"],
        data=told["data"],
        properties=told["properties"],
        registered_at=told["timestamp"],
    )
