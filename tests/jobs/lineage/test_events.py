"""Events are those of OpenLineage: what a step read and wrote, under the names that others give to it, too."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from openlineage.client.serde import Serde
from pydantic import SecretStr
from pyspark.sql.types import BinaryType, LongType, StringType, StructType

from pulsar_lakehouse.contracts.topics import Topic
from pulsar_lakehouse.gold.sql.declaration import read_declaration
from pulsar_lakehouse.jobs.lineage.events import Done, named, names_of, run_event
from pulsar_lakehouse.jobs.lineage.flows import Flow, landed, refreshed
from pulsar_lakehouse.settings import Pulsar, Settings
from tests.lake import own_home

RUN = "01890a5d-ac96-774b-bcce-b302099a8057"
STORES = Topic("stores", "id BIGINT NOT NULL, place STRUCT<city: STRING>")


@pytest.fixture
def project(settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    monkeypatch.delenv("OPENLINEAGE_NAMESPACE", raising=False)
    pulsar = Pulsar(service_url="pulsar://there:6650", admin_url="http://there:8080", namespace="public/shop")
    return own_home(settings, tmp_path).model_copy(update={"pulsar": pulsar, "warehouse": "s3a://bucket/tables"})


def told(project: Settings, flow: Flow, state: str, **done: Any) -> dict[str, Any]:
    at = datetime(2026, 1, 31, tzinfo=UTC)
    event = run_event(project, flow, state, run_id=RUN, at=at, names=names_of(project, flow), done=Done(**done))
    return Serde.to_dict(event)


def facets_of(event: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Facets, by dataset and name, without what all facets have."""
    return {
        f"{dataset['namespace']}/{dataset['name']}": {
            name: {key: value for key, value in facet.items() if not key.startswith("_")}
            for kind in ("facets", "inputFacets", "outputFacets")
            for name, facet in dataset.get(kind, {}).items()
        }
        for dataset in (*event["inputs"], *event["outputs"])
    }


def test_an_event_says_what_was_read_and_written(project: Settings) -> None:
    bronze = StructType().add("payload", BinaryType()).add("key", StringType()).add("entry_id", LongType())
    done = {"read": 3, "written": {"bronze.stores": 3}, "schemas": {"bronze.stores": bronze}}
    event = told(project, landed(STORES), "COMPLETE", **done)
    place = {"name": "place", "type": "struct", "fields": [{"name": "city", "type": "string", "fields": []}]}
    payload = [{"name": "id", "type": "bigint", "fields": []}, place]
    source = {"namespace": "pulsar://there:6650", "name": "public/shop/stores"}
    same = [{"type": "DIRECT", "subtype": "IDENTITY"}]
    assert (event["job"]["namespace"], event["job"]["name"], event["run"]["runId"]) == ("default", "land stores", RUN)
    assert event["producer"] == event["inputs"][0]["facets"]["schema"]["_producer"]
    assert event["producer"].startswith("urn:pulsar-lakehouse:")
    assert facets_of(event) == {
        "pulsar://there:6650/public/shop/stores": {"schema": {"fields": payload}, "inputStatistics": {"rowCount": 3}},
        "s3://bucket/tables/bronze/stores": {
            "symlinks": {
                "identifiers": [{"namespace": "s3://bucket/tables", "name": "bronze.stores", "type": "TABLE"}]
            },
            "schema": {
                "fields": [
                    {"name": "payload", "type": "binary", "fields": payload},
                    {"name": "key", "type": "string", "fields": []},
                    {"name": "entry_id", "type": "bigint", "fields": []},
                ]
            },
            "columnLineage": {
                "dataset": [],
                "fields": {
                    f"payload.{name}": {"inputFields": [{**source, "field": name, "transformations": same}]}
                    for name in ("id", "place")
                },
            },
            "outputStatistics": {"rowCount": 3},
        },
    }


def test_a_failure_is_told_with_its_reason_and_the_query(project: Settings, tmp_path: Path) -> None:
    file = tmp_path / "t.sql"
    file.write_text("-- T.\n-- keys: city\n-- refresh: full\nSELECT city FROM silver.stores\n")
    event = told(project, refreshed(read_declaration(file), {}), "FAIL", failure="no disk")
    assert event["run"]["facets"]["errorMessage"]["message"] == "no disk"
    assert event["job"]["facets"]["sql"]["query"] == file.read_text()


def test_a_run_of_a_task_is_the_parent(project: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "parent" not in told(project, landed(STORES), "START")["run"]["facets"]
    monkeypatch.setenv("OPENLINEAGE_PARENT_ID", f"airflow/pipeline.land/{RUN}")
    monkeypatch.setenv("OPENLINEAGE_ROOT_PARENT_ID", f"airflow/pipeline/{RUN}")
    parent = told(project, landed(STORES), "START")["run"]["facets"]["parent"]
    assert (parent["job"]["namespace"], parent["job"]["name"]) == ("airflow", "pipeline.land")
    assert (parent["root"]["job"]["name"], parent["run"], parent["root"]["run"]["runId"]) == (
        "pipeline",
        {"runId": RUN, "facets": {}},
        RUN,
    )


@pytest.mark.parametrize(
    ("name", "dataset"),
    [
        ("topic stores", ("pulsar://there:6650", "public/shop/stores")),
        ("silver.stores", ("s3://bucket", "tables/silver/stores")),
        ("postgres counts", ("postgres://db:5432", "shop.public.counts")),
        ("postgres sales.counts", ("postgres://db:5432", "shop.sales.counts")),
    ],
)
def test_names_are_those_of_the_specification(project: Settings, name: str, dataset: tuple[str, str]) -> None:
    postgres = project.postgres.model_copy(update={"url": SecretStr("postgresql://me:secret@db/shop")})
    assert named(project.model_copy(update={"postgres": postgres}), name) == dataset


def test_a_table_in_a_folder_is_named_by_its_path(settings: Settings, tmp_path: Path) -> None:
    assert named(own_home(settings, tmp_path), "silver.stores") == ("file", f"{tmp_path}/warehouse/silver/stores")
