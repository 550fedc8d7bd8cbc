"""Which schemas landing keeps beside bronze, and what it says of them. Nothing about a schema stops it."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from pulsar_lakehouse.bronze import schemas
from pulsar_lakehouse.bronze.landing import bronze_table
from pulsar_lakehouse.bronze.partitions import CREATED, GONE
from pulsar_lakehouse.bronze.schemas import (
    WRITER_SCHEMAS,
    append_schemas,
    keep_schemas,
    kept_schemas,
    unreadable,
    with_schemas,
)
from pulsar_lakehouse.contracts.batches import SparkDecoder
from pulsar_lakehouse.contracts.schemas import RegisteredSchema
from pulsar_lakehouse.contracts.topics import Encoding, Topic
from pulsar_lakehouse.pulsar.endpoint import Endpoint, admin_path, call_admin
from pulsar_lakehouse.settings import Settings
from pulsar_lakehouse.tables.direct import append_values
from pulsar_lakehouse.tables.lake import Lake
from tests.lake import own_topics, read

TRIPS = Topic("trips", "id BIGINT NOT NULL, riders INT", topic="Trips-v1", encoding=Encoding.AVRO)
OLD = {"id": "long", "riders": "int"}
NEW = OLD | {"tip": "double"}


@pytest.fixture
def project(settings: Settings, endpoint: Endpoint, tmp_path: Path) -> Settings:
    return own_topics(settings, endpoint, tmp_path, [])


@pytest.fixture
def own_lake(lake: Lake, project: Settings) -> Lake:
    return replace(lake, settings=project)


def record(fields: dict[str, str]) -> str:
    default: dict[str, Any] = {"double": {"default": 0.0}}
    columns = [{"name": name, "type": kind, **default.get(kind, {})} for name, kind in fields.items()]
    return json.dumps({"type": "record", "name": "Trips", "fields": columns})


def register(project: Settings, endpoint: Endpoint, type: str, text: str = "", *, topic: Topic = TRIPS) -> None:
    path = f"{admin_path(topic.full_name(project.pulsar.namespace), 'schemas')}/schema"
    call_admin("POST", path, endpoint, project, body={"type": type, "schema": text, "properties": {}})


def forget(project: Settings, endpoint: Endpoint) -> None:
    path = f"{admin_path(TRIPS.full_name(project.pulsar.namespace), 'schemas')}/schema"
    call_admin("DELETE", f"{path}?force=true", endpoint, project)


def kept(project: Settings, topic: Topic = TRIPS) -> list[tuple[int, str, str]]:
    return [(each.version, each.type, each.data) for each in kept_schemas(project, topic)]


@pytest.mark.parametrize("type", ["AVRO", "JSON"])
def test_all_versions_are_kept(own_lake: Lake, project: Settings, endpoint: Endpoint, type: str) -> None:
    for fields in (OLD, NEW):
        register(project, endpoint, type, record(fields))
    keep_schemas(own_lake, TRIPS, endpoint)
    assert kept(project) == [(0, type, record(OLD)), (1, type, record(NEW))]


def test_schemas_of_all_types_are_kept(own_lake: Lake, project: Settings, endpoint: Endpoint) -> None:
    topics = [replace(TRIPS, topic=f"as {type}") for type in ("STRING", "INT64", "INSTANT")]
    for topic in topics:
        register(project, endpoint, topic.own_name.split()[1], topic=topic)
        keep_schemas(own_lake, topic, endpoint)
    assert [kept(project, topic) for topic in topics] == [[(0, "STRING", "")], [(0, "INT64", "")], [(0, "INSTANT", "")]]


def test_a_topic_without_a_schema_has_none(own_lake: Lake, project: Settings, endpoint: Endpoint) -> None:
    keep_schemas(own_lake, TRIPS, endpoint)
    assert (kept(project), with_schemas(project, TRIPS)) == ([], TRIPS)


def test_nothing_new_is_one_call(
    own_lake: Lake, project: Settings, endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    register(project, endpoint, "AVRO", record(OLD))
    keep_schemas(own_lake, TRIPS, endpoint)
    monkeypatch.setattr(schemas, "all_schemas", None)
    keep_schemas(own_lake, TRIPS, endpoint)
    assert kept(project) == [(0, "AVRO", record(OLD))]


def test_versions_that_begin_again_are_told_apart(own_lake: Lake, project: Settings, endpoint: Endpoint) -> None:
    for fields in (OLD, {"riders": "int", "id": "long"}):
        register(project, endpoint, "AVRO", record(fields))
        keep_schemas(own_lake, TRIPS, endpoint)
        forget(project, endpoint)
    first, second = with_schemas(project, TRIPS).schemas
    assert (first.version, second.version, first.registered_at < second.registered_at) == (0, 0, True)
    assert [json.loads(each.data)["fields"][0]["name"] for each in (first, second)] == ["id", "riders"]


def test_what_the_release_before_has_kept_is_read(own_lake: Lake, project: Settings, endpoint: Endpoint) -> None:
    own_lake.create(WRITER_SCHEMAS)
    append_values(project, WRITER_SCHEMAS.name, [{"topic": "trips", "version": 0, "schema": record(OLD)}])
    register(project, endpoint, "AVRO", record(NEW))
    keep_schemas(own_lake, TRIPS, endpoint)
    assert [(each.registered_at > 0, each.data) for each in kept_schemas(project, TRIPS)] == [
        (False, record(OLD)),
        (True, record(NEW)),
    ]


def test_a_topic_of_the_same_name_elsewhere_has_its_own(own_lake: Lake, project: Settings) -> None:
    elsewhere = replace(TRIPS, topic="persistent://public/default/Trips-v1")
    own_lake.create(schemas.SCHEMAS)
    for topic, text in ((TRIPS, "a"), (elsewhere, "b")):
        append_schemas(project, topic, [RegisteredSchema(version=0, type="JSON", data=text)])
    assert (kept(project), kept(project, elsewhere)) == ([(0, "JSON", "a")], [(0, "JSON", "b")])
    assert {row["topic"] for row in read(project, "bronze.schemas")} == {
        f"persistent://{project.pulsar.namespace}/Trips-v1",
        "persistent://public/default/Trips-v1",
    }


def test_a_difference_is_a_line_once(
    own_lake: Lake, project: Settings, endpoint: Endpoint, capsys: pytest.CaptureFixture[str]
) -> None:
    register(project, endpoint, "JSON", record({"id": "string", "tip": "double"}))
    for _ in range(2):
        keep_schemas(own_lake, TRIPS, endpoint)
    assert capsys.readouterr().err.splitlines() == [
        "trips: id is registered as string, but declared as long",
        "trips: registered, but not declared: tip",
    ]
    assert unreadable(project, TRIPS) == ["id is registered as string, but declared as long"]


def test_a_broker_that_does_not_say_stops_nothing(
    own_lake: Lake, project: Settings, capsys: pytest.CaptureFixture[str]
) -> None:
    keep_schemas(own_lake, TRIPS, Endpoint(service_url="pulsar://127.0.0.1:9", admin_url="http://127.0.0.1:9"))
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith("trips: its registered schemas could not be kept; the next landing tries again: http://")


def test_what_landed_under_another_name_is_decoded_by_its_own_schemas(own_lake: Lake, project: Settings) -> None:
    """Version 0 of each topic has the fields in another order. The one that is gone is no problem."""
    renamed = replace(TRIPS, topic="Trips-v2")
    backwards = record({"riders": "int", "id": "long"})
    own_lake.create(schemas.SCHEMAS)
    for topic, text in ((TRIPS, record(OLD)), (renamed, backwards)):
        append_schemas(project, topic, [RegisteredSchema(version=0, type="AVRO", data=text)])
    old, new = (topic.full_name(project.pulsar.namespace) for topic in (TRIPS, renamed))
    created = json.dumps({f"{old}-partition-0": "then", f"{new}-partition-0": "now"})
    own_lake.create(replace(bronze_table(TRIPS), properties={CREATED: created, GONE: json.dumps([new])}))
    decoder = SparkDecoder(with_schemas(project, renamed), ())
    assert decoder.reads[-1] == "topic"
    given = pa.array([b"\x02\x04"] * 2), pa.array(["", ""]), pa.array([0, 0]), pa.array([9, 9], pa.timestamp("us"))
    found = decoder.decode(*given, pa.array([old, new])).to_pylist()
    assert [each["fields"] for each in found] == [{"id": 1, "riders": 2}, {"id": 2, "riders": 1}]
    wrong = replace(TRIPS, fields="id STRING NOT NULL", topic=("Trips-v1", "Trips-v2"))
    [line] = unreadable(project, wrong)
    assert line.startswith(f"{old}: id is registered as long")
