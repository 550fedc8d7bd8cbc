"""What is drafted of a topic with the changes of a database's table, in each form that Debezium writes."""

import json
from pathlib import Path
from typing import Any

import pytest

from pulsar_lakehouse.contracts.schemas import RegisteredSchema
from pulsar_lakehouse.errors import ConfigurationError
from pulsar_lakehouse.pipeline.draft import draft, names_of
from pulsar_lakehouse.pipeline.loading import load
from pulsar_lakehouse.pulsar.topic_contents import Contents, Sampled

SOURCE = {"connector": "postgresql", "ts_ms": 1769860800000, "lsn": 77, "table": "cities"}
DRAFT = '''\
"""A draft of the topic shop.public.cities, from 2 of its messages."""

from pulsar_lakehouse import Debezium, Entity, KeyEncoding, Topic

# Debezium replicates a table whose key is id.
CITIES = Entity(
    topic=Topic(
        "cities",
        """
            id BIGINT NOT NULL,
            name STRING,
            __source_lsn BIGINT,
            __source_ts_ms TIMESTAMP_MILLIS
        """,
        topic="shop.public.cities",
        key_encoding=KeyEncoding.JSON,
        envelope=Debezium(),
    ),
    key="id",
    columns="""
        id,
        name,
        __source_lsn AS lsn
    """,
    sequence_by="lsn",
    occurred_at="__source_ts_ms",
)
'''


def change(op: str, before: Any, after: Any, **source: Any) -> dict[str, Any]:
    return {"before": before, "after": after, "source": SOURCE | source, "op": op, "ts_ms": 1, "transaction": None}


def contents(*messages: tuple[Any, Any], schema: RegisteredSchema | None = None) -> Contents:
    """`messages` are keys and payloads, both as JSON; those that are None are none."""

    def text(value: Any) -> str | None:
        return None if value is None else json.dumps(value)

    sample = tuple(Sampled(text(key), (text(value) or "").encode() or None) for key, value in messages)
    return Contents(topic="shop.public.cities", schema=schema, sample=sample)


CHANGES = (
    ({"id": 1}, change("r", None, {"id": 1, "name": "Ulm"})),
    ({"id": 1}, change("u", None, {"id": 1, "name": "Ulm"})),
    ({"id": 1}, change("d", {"id": 1, "name": ""}, None)),
    ({"id": 1}, None),
)


def connect(kind: str, field: str, *fields: dict[str, Any]) -> dict[str, Any]:
    return {"type": kind, "field": field, "optional": True, "name": f"shop.{field}", "fields": list(fields)}


def test_the_rows_of_an_envelope_are_drafted(tmp_path: Path) -> None:
    text = draft(contents(*CHANGES), "cities")
    assert text == DRAFT
    (tmp_path / "cities.py").write_text(text)
    assert load(tmp_path).pipeline.entities[0].name == "cities"


def test_the_schema_of_connects_converter_gives_the_types() -> None:
    number, name = {"type": "int32", "field": "id", "optional": False}, {"type": "string", "field": "name"}
    day = {"type": "int32", "field": "founded", "name": "io.debezium.time.Date"}
    source = connect("struct", "source", {"type": "int64", "field": "lsn"}, {"type": "int64", "field": "ts_ms"})
    rows = (connect("struct", part, number, name, day) for part in ("before", "after"))
    schema = connect("struct", "envelope", *rows, source, {"type": "string", "field": "op"})
    wrapped = [
        ({"schema": {}, "payload": key}, value and {"schema": schema, "payload": value}) for key, value in CHANGES
    ]
    text = draft(contents(*wrapped), "cities")
    assert text == DRAFT.replace("id BIGINT", "id INT").replace(
        "name STRING,\n", "name STRING,\n            founded DATE,\n"
    ).replace("        name,\n", "        name,\n        founded,\n")


@pytest.mark.parametrize(
    ("source", "order"),
    [
        ({"connector": "mysql", "file": "mysql-bin.3", "pos": 5, "row": 0}, '("file", "pos", "row")'),
        (
            {"connector": "sqlserver", "commit_lsn": "1:2", "change_lsn": "1:3", "event_serial_no": 1},
            '("commit_lsn", "change_lsn", "event_serial_no")',
        ),
    ],
)
def test_each_database_has_its_own_order(source: dict[str, Any], order: str) -> None:
    found = contents(({"id": 1}, change("c", None, {"id": 1}, **source)))
    assert f"sequence_by={order}," in draft(found, "cities")


def test_topics_that_are_unwrapped_already_are_drafted_as_well() -> None:
    row = {"id": 1, "name": "Ulm", "__deleted": "false", "__source_lsn": 7, "__source_ts_ms": 1769860800000}
    assert draft(contents(({"id": 1}, row), ({"id": 1}, row)), "cities") == DRAFT


def test_a_table_without_a_key_is_one_of_events() -> None:
    found = contents(("default", change("c", None, {"name": "Ulm"})))
    assert "= Enrichment(" in draft(found, "cities")


@pytest.mark.parametrize(
    "payload",
    [
        {"op": "add", "before": 1, "after": 2},
        {"id": 1, "__op": "u", "source": "web"},
        {"schema": {"type": "struct", "fields": 5}, "payload": {"id": 1}},
        {**change("c", None, {"id": 1}), "source": None},
    ],
)
def test_what_only_looks_like_an_envelope_stops_no_draft(payload: dict[str, Any]) -> None:
    assert "CITIES = " in draft(contents(({"id": 1}, payload)), "cities")


def test_the_positions_of_a_connector_are_no_table() -> None:
    found = Contents(topic="shop-debezium-offset-topic", schema=None, sample=())
    with pytest.raises(ConfigurationError, match="a connector of Pulsar keeps its own position there"):
        draft(found, "positions")


def test_its_tables_are_named_after_the_table_of_the_database() -> None:
    assert names_of([contents(*CHANGES)]) == {"shop.public.cities": "cities"}
