"""What is wrong with the declaration of a source, a line each."""

from pathlib import Path
from typing import Any

import pytest

from pulsar_lakehouse import DeltaTable, Entity, Files, Postgres, Topic
from pulsar_lakehouse.contracts.sources import Source
from pulsar_lakehouse.errors import ConfigurationError, DeclarationsError
from pulsar_lakehouse.pipeline.checks import mistakes_of
from pulsar_lakehouse.pipeline.graph import nodes
from pulsar_lakehouse.pipeline.loading import load
from tests.pipeline.projects import project

FIELDS = "id BIGINT NOT NULL, name STRING, at TIMESTAMP"
REGIONS = Postgres("regions", FIELDS, table="crm.regions")
DECLARED = """
from pulsar_lakehouse import Entity, Files, Postgres

REGIONS = Entity(
    source={source},
    key="id",
    columns="id, name",
)
"""


def entity(source: Any = REGIONS, **more: Any) -> Entity:
    return Entity(**{"source": source, "key": "id", "columns": "id, name"} | more)


def test_an_entity_of_a_source_has_what_one_of_a_topic_has() -> None:
    made = entity()
    assert (made.name, made.topic, made.source_keys, made.origins) == (
        "regions",
        Topic("regions", FIELDS),
        ("id",),
        ("postgres crm.regions",),
    )


@pytest.mark.parametrize(
    ("source", "line"),
    [
        (Postgres("regions", FIELDS, every="500 ms"), "every: 500 ms: must be a time such as 30 seconds, 10 minutes, "),
        (Postgres("regions", FIELDS, every="often"), "every: often: must be a time such as 30 seconds, 10 minutes, "),
        (Postgres("regions", FIELDS, max_deletes=20), "max_deletes: 20: must be a share from 0 to 1, such as 0.1"),
        (
            Files("regions", FIELDS, path="regions"),
            "path: regions: must end with .csv or .parquet, such as regions/*.csv",
        ),
        (DeltaTable("regions", FIELDS, path=" "), "path: is empty: must be the folder of a Delta table"),
        (Postgres("Re-gions", FIELDS), "name: Re-gions: must be a name of lower-case letters, digits and _, such as "),
    ],
)
def test_mistakes_of_a_source(source: Source, line: str) -> None:
    [found] = mistakes_of(entity(source))
    assert found.startswith(line)


@pytest.mark.parametrize(
    ("more", "line"),
    [
        ({"topic": Topic("stores", FIELDS)}, "stores: has a topic and a source: leave one of them out"),
        ({"sequence_by": "name"}, "regions: sequence_by: each snapshot of a source says all of its rows, and in what "),
        ({"ignore_null_updates": True}, "regions: ignore_null_updates: each snapshot of a source says all of its rows"),
        ({"columns": "id + 1 AS id, name"}, "regions: key id: id + 1: must be a field of the source: id, name, at"),
        (
            {"key": "at", "columns": "at"},
            "regions: key at is timestamp: must be a text, an integer, a boolean or a date",
        ),
        ({"source": None}, "Entity needs a topic or a source"),
    ],
)
def test_mistakes_of_its_entity(more: dict[str, Any], line: str) -> None:
    with pytest.raises(ConfigurationError) as error:
        entity(**more)
    assert str(error.value).startswith(line)


@pytest.mark.parametrize(
    ("source", "line"),
    [
        ('Postgres("regions", "id BIGIN", every="1 hour")', "postgres regions: field id is BIGIN: must be one of "),
        ('Postgres("regions", "id BIGINT", evry="1 hour")', "evry: Postgres has no such argument; did you mean every?"),
        ('Files("regions", "id BIGINT")', "Files needs path"),
        ('Files("regions", "id BIGINT", path=3)', "files regions: path: 3: must be a text"),
        ('Files("regions", "id BIGINT", path="x.json")', "path: x.json: must end with .csv or .parquet"),
    ],
)
def test_they_are_told_with_file_and_line(
    source: str, line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(DeclarationsError) as error:
        load(project(tmp_path, regions=DECLARED.format(source=source)))
    assert error.value.mistakes[0].startswith(f"declarations/regions.py:4: REGIONS: {line}")


def test_two_declarations_of_one_name_are_told(tmp_path: Path) -> None:
    twice = DECLARED.format(source='Postgres("regions", "id BIGINT, name STRING")')
    with pytest.raises(
        DeclarationsError, match=r"regions\.py:4: REGIONS: table bronze\.regions: is the table of .*others\.py:4"
    ):
        load(project(tmp_path, regions=twice, others=twice))


def test_a_source_is_in_the_graph_and_no_topic(tmp_path: Path) -> None:
    files = DECLARED.format(source='Files("regions", "id BIGINT, name STRING", path="regions/*.csv")')
    found = load(project(tmp_path, regions=files)).pipeline
    assert [(each.name, each.sources) for each in nodes(found)][:2] == [
        ("files regions/*.csv", ()),
        ("bronze.regions", ("files regions/*.csv",)),
    ]
    assert (found.topics, [each.name for each in found.landed]) == ((), ["regions"])
