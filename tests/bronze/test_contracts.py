import json
from dataclasses import replace
from typing import Any

import pytest

from pulsar_lakehouse.bronze.contracts import check_contracts, registered_schemas
from pulsar_lakehouse.contracts.avro_schemas import Written
from pulsar_lakehouse.contracts.topics import Topic
from pulsar_lakehouse.errors import ConfigurationError
from pulsar_lakehouse.pulsar.endpoint import Endpoint, call_admin
from pulsar_lakehouse.pulsar.topic_admin import create_topics
from pulsar_lakehouse.settings import Settings

TRIPS = Topic("trips", "id BIGINT NOT NULL, distance DOUBLE NOT NULL, riders INT, note STRING", record="Trip")
READABLE = {"id": "long", "distance": "double", "riders": "int", "note": "string"}


def register(fields: dict[str, Any], endpoint: Endpoint, settings: Settings, *, name: str, kind: str = "JSON") -> Topic:
    """Register a schema with these fields; returns a topic of that name that is declared like TRIPS."""
    topic = replace(TRIPS, name=name)
    create_topics([], endpoint, settings)
    unset = {name: {"default": None} for name, kind in fields.items() if isinstance(kind, list)}
    columns = [{"name": name, "type": kind, **unset.get(name, {})} for name, kind in fields.items()]
    record = {"type": "record", "name": "Trip", "fields": columns}
    schema = {"type": kind, "schema": json.dumps(record), "properties": {}}
    call_admin("POST", f"schemas/{settings.pulsar.namespace}/{name}/schema", endpoint, settings, body=schema)
    return topic


def test_schemas_come_oldest_first(endpoint: Endpoint, settings: Settings) -> None:
    for fields in (READABLE, READABLE | {"tip": ["null", "double"]}):
        topic = register(fields, endpoint, settings, name="trips-twice")
    assert [Written(each["data"]).names for each in registered_schemas(topic, endpoint, settings)] == [
        [*READABLE],
        [*READABLE, "tip"],
    ]


def test_a_difference_is_one_line(endpoint: Endpoint, settings: Settings) -> None:
    topic = register(READABLE | {"id": "string"}, endpoint, settings, name="trips-broken")
    with pytest.raises(ConfigurationError, match=r"^trips-broken: id is registered as string, but declared as long$"):
        check_contracts([topic], endpoint, settings)


def test_another_encoding_is_refused(endpoint: Endpoint, settings: Settings) -> None:
    topic = register(READABLE, endpoint, settings, name="trips-in-avro", kind="AVRO")
    with pytest.raises(ConfigurationError, match=r"^trips-in-avro: registered as AVRO, but declared as JSON$"):
        check_contracts([topic], endpoint, settings)


def test_fields_that_are_not_declared_are_said(
    endpoint: Endpoint, settings: Settings, capsys: pytest.CaptureFixture[str]
) -> None:
    topic = register(READABLE | {"tip": "double", "city": "string"}, endpoint, settings, name="trips-with-more")
    check_contracts([topic], endpoint, settings)
    assert capsys.readouterr().err == "trips-with-more: registered, but not declared: city, tip\n"


def test_without_a_schema_nothing_is_checked(
    endpoint: Endpoint, settings: Settings, capsys: pytest.CaptureFixture[str]
) -> None:
    schema = {"type": "STRING", "schema": "", "properties": {}}
    path = f"schemas/{settings.pulsar.namespace}/trips-as-text/schema"
    call_admin("POST", path, endpoint, settings, body=schema)
    check_contracts([TRIPS, replace(TRIPS, name="trips-as-text")], endpoint, settings)
    assert capsys.readouterr().err == ""
