"""Schemas that change while the pipeline runs, or that nobody has expected: what they do to a topic, and to others."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pulsar.schema import AvroSchema

from pulsar_lakehouse.cli.plan import plan_command
from pulsar_lakehouse.contracts.topics import Encoding, Topic
from pulsar_lakehouse.jobs import steps
from pulsar_lakehouse.jobs.new_data import Look
from pulsar_lakehouse.jobs.pipeline_status import status_of
from pulsar_lakehouse.jobs.problems import problems
from pulsar_lakehouse.jobs.streams import keep_up
from pulsar_lakehouse.leases.leases import Lease
from pulsar_lakehouse.pulsar.endpoint import Endpoint, connect
from pulsar_lakehouse.settings import Settings
from pulsar_lakehouse.silver.entity import Entity
from pulsar_lakehouse.tables.lake import Lake
from tests.lake import environment, own_topics, read

SHIPS = Entity(
    topic=Topic("ships", "id BIGINT NOT NULL, name STRING", topic="Ships-v1", encoding=Encoding.AVRO),
    key="id",
    columns="id, name",
)
ID, TEXT_ID = {"name": "id", "type": "long"}, {"name": "id", "type": "string"}
NAME = {"name": "name", "type": ["null", "string"], "default": None}
DECLARED = """
from pulsar_lakehouse import Encoding, Entity, Topic

{tables} = tuple(
    Entity(topic=Topic(name, "id BIGINT NOT NULL, name STRING", encoding=Encoding.AVRO), key="id", columns="id, name")
    for name in ("boats", "ships")
)
"""


def ship(*fields: dict[str, Any]) -> AvroSchema:
    return AvroSchema(None, schema_definition={"type": "record", "name": "Ship", "fields": list(fields)})


def send(settings: Settings, endpoint: Endpoint, topic: str, schema: AvroSchema, payload: dict[str, Any]) -> None:
    client = connect(endpoint, settings)
    client.create_producer(f"persistent://{settings.pulsar.namespace}/{topic}", schema=schema).send(payload)
    client.close()


def test_a_schema_that_is_registered_while_rounds_run_is_read_in_the_next(
    lake: Lake, endpoint: Endpoint, tmp_path: Path
) -> None:
    project = own_topics(lake.settings, endpoint, tmp_path, [])
    own_lake = Lake(lake.spark, project)
    messages: Iterator[tuple[AvroSchema, dict[str, Any]]] = iter(
        [(ship(ID), {"id": 1}), (ship(NAME, ID), {"id": 2, "name": "Zoë"})]
    )
    send(project, endpoint, "Ships-v1", ship(ID), {"id": 0})

    def look() -> Look:
        if (message := next(messages, None)) is None:
            raise KeyboardInterrupt
        send(project, endpoint, "Ships-v1", *message)
        return {"sent": message}

    streams = [steps.landing(own_lake, [SHIPS.topic]), steps.merging(own_lake, [SHIPS])]
    with pytest.raises(KeyboardInterrupt):
        keep_up(project, streams, every=0, look=look, lease=Lease(command="", kind="step"))
    assert read(project, "quarantine.malformed") == []
    assert {row["id"]: row["name"] for row in read(project, "silver.ships")} == {0: None, 1: None, 2: "Zoë"}


def test_another_type_of_record_concerns_its_topic_alone(
    lake: Lake,
    endpoint: Endpoint,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "declarations").mkdir()
    (tmp_path / "declarations" / "vessels.py").write_text(DECLARED.format(tables="VESSELS"))
    project = own_topics(lake.settings, endpoint, tmp_path, [])
    project = project.model_copy(update={"declarations": tmp_path / "declarations"})
    send(project, endpoint, "boats", ship(TEXT_ID, NAME), {"id": "one", "name": "Ada"})
    send(project, endpoint, "ships", ship(ID, NAME), {"id": 1, "name": "Ada"})

    done = steps.run_all(Lake(lake.spark, project))
    assert {each.name: each.rows for each in done} == {
        "land boats": 1,
        "land ships": 1,
        "merge boats": 1,
        "merge ships": 1,
    }
    assert [row["name"] for row in read(project, "silver.ships")] == ["Ada"]
    assert [row["topic"] for row in read(project, "quarantine.malformed")] == ["boats"]
    assert next(problems(status_of(project))) == (
        "boats: id is registered as string, but declared as long: its messages are malformed until that is declared; "
        "then run `lakehouse quarantine retry`"
    )
    for name, value in environment(project, LAKEHOUSE_DECLARATIONS=str(project.declarations)).items():
        monkeypatch.setenv(name, value)
    plan_command()
    assert capsys.readouterr().out.splitlines()[-1] == (
        "boats: id is registered as string, but declared as long: its messages are malformed until that is declared"
    )
