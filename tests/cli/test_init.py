"""The projects that `lakehouse init` makes."""

import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
from pulsar.schema import AvroSchema, BytesSchema, Schema

from pulsar_lakehouse.cli.init import init_command
from pulsar_lakehouse.cli.send import send_command
from pulsar_lakehouse.errors import ConfigurationError
from pulsar_lakehouse.inspection.query import query
from pulsar_lakehouse.jobs.steps import run_all
from pulsar_lakehouse.pipeline.loading import pipeline_of
from pulsar_lakehouse.pulsar.endpoint import Endpoint, call_admin, connect
from pulsar_lakehouse.pulsar.produce import Encoded, MessageSchema
from pulsar_lakehouse.settings import Settings, load_settings
from pulsar_lakehouse.tables.lake import Lake
from tests.lake import environment, own_topics


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_project_is_whole(folder: Path) -> None:
    init_command(Path("shops"))
    assert sorted(str(file.relative_to(folder)) for file in folder.rglob("*") if file.is_file()) == [
        "shops/.gitignore",
        "shops/README.md",
        "shops/dags/lakehouse_dags.py",
        "shops/declarations/sales.py",
        "shops/declarations/sql/revenue_by_city.sql",
        "shops/declarations/stores.py",
        "shops/lakehouse.toml",
        "shops/messages/sales.jsonl",
        "shops/messages/stores.jsonl",
        "shops/tests/test_declarations.py",
    ]
    assert (folder / "shops" / "README.md").read_text().startswith("# shops\n")


def test_two_projects_do_not_meet(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = []
    for name in ("one", "My shop"):
        init_command(folder / name)
        monkeypatch.chdir(folder / name)
        settings = load_settings()
        found.append((settings.home, settings.pulsar.namespace, pipeline_of(settings).written))
    written = ("bronze.stores", "bronze.sales", "silver.stores", "gold.enriched_sales")
    assert found == [
        (folder / "one" / ".lakehouse", "public/one", written),
        (folder / "My shop" / ".lakehouse", "public/my-shop", written),
    ]


def test_a_folder_that_is_not_empty_is_refused(folder: Path) -> None:
    (folder / "full").mkdir()
    (folder / "full" / "file").touch()
    for name in ("full", "full/file"):
        with pytest.raises(ConfigurationError) as error:
            init_command(Path(name))
        assert str(error.value) == f"{name}: is there already: must be a new or an empty folder"


def test_topics_are_named_only_to_be_read(folder: Path) -> None:
    with pytest.raises(ConfigurationError) as error:
        init_command(Path("shops"), ["orders"])
    assert str(error.value) == "orders: topics can be named with --from-topics only"
    assert not (folder / "shops").exists()


@pytest.mark.long
@pytest.mark.spark
def test_the_tests_of_a_project_pass(folder: Path) -> None:
    init_command(Path("shops"))
    own = {**os.environ, "PYTEST_DEBUG_TEMPROOT": str(folder)}  # the folder of this run would become its own
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-o", "tmp_path_retention_policy=failed"]
    done = subprocess.run(command, cwd="shops", env=own, capture_output=True)
    assert (done.returncode, b"2 passed" in done.stdout) == (0, True), done.stdout.decode()


def test_the_messages_of_a_project_can_be_sent_and_run(
    folder: Path, lake: Lake, endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    init_command(Path("shops"))
    monkeypatch.chdir("shops")
    topics = pipeline_of(load_settings()).topics
    own = own_topics(lake.settings, endpoint, folder, topics)
    own = own.model_copy(update={"declarations": Path("declarations").resolve()})
    for name, value in environment(own).items():
        monkeypatch.setenv(name, value)
    for topic in ("stores", "sales"):
        send_command(topic, Path("messages", f"{topic}.jsonl"))
    list(run_all(Lake(lake.spark, own)))
    assert query(
        own,
        """
        SELECT id, store.city, NULL FROM gold.enriched_sales
        UNION ALL SELECT id, NULL, reason FROM quarantine.waiting_sales ORDER BY id
        """,
    ).fetchall() == [(1, "Berlin", None), (2, "Porto", None), (3, "Berlin", None), (4, None, "store missing")]


@pytest.mark.long
def test_drafts_of_topics_can_be_run(
    folder: Path,
    lake: Lake,
    endpoint: Endpoint,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    own = own_topics(lake.settings, endpoint, folder, [])
    for name, value in environment(own).items():
        monkeypatch.setenv(name, value)
    call_admin("PUT", f"persistent/{own.pulsar.namespace}/users/partitions", endpoint, own, body=2)
    written = Encoded(MessageSchema("JSON", json.dumps(USER)), "User")
    send(own, endpoint, "users", written, b'{"id": 1, "joinedAt": 1767225600000}', key="1")
    send(own, endpoint, "users", written, None, key="2")
    send(own, endpoint, "ships", AvroSchema(None, schema_definition=SHIP), {"id": 7, "speed": 1.5}, key="7")
    send(own, endpoint, "clicks", BytesSchema(), b'{"page": "/", "clickedAt": 1767225600000}')
    send(own, endpoint, "My-Texts", BytesSchema(), b"hello")

    init_command(Path("drafts"), from_topics=True)
    assert capsys.readouterr().out.splitlines()[0] == (
        "Left out: My-Texts: a topic that has tables must be named in lower case, such as orders"
    )
    monkeypatch.chdir("drafts")
    assert tomllib.loads(Path("lakehouse.toml").read_text())["pulsar"] == {
        "namespace": own.pulsar.namespace,
        "service_url": endpoint.service_url,
        "admin_url": endpoint.admin_url,
    }
    project = own.model_copy(update={"declarations": Path("declarations").resolve()})
    list(run_all(Lake(lake.spark, project)))
    found = {
        "silver.users": "SELECT id, joined_at::VARCHAR, deleted_at IS NULL FROM silver.users ORDER BY id",
        "silver.ships": "SELECT id, speed, name FROM silver.ships",
        "gold.enriched_clicks": "SELECT page, clicked_at::VARCHAR, length(message_id) > 2 FROM gold.enriched_clicks",
    }
    assert {name: query(project, sql).fetchall() for name, sql in found.items()} == {
        "silver.users": [(1, "2026-01-01 00:00:00+00", True), (2, None, False)],
        "silver.ships": [(7, 1.5, None)],
        "gold.enriched_clicks": [("/", "2026-01-01 00:00:00+00", True)],
    }


def test_topics_that_are_not_there(
    folder: Path, settings: Settings, endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = own_topics(settings, endpoint, folder, [])
    for name, value in environment(own).items():
        monkeypatch.setenv(name, value)
    for topics, line in (
        ([], f"pulsar.namespace: {own.pulsar.namespace}: has no topics"),
        (["users"], f"users: no topic of {own.pulsar.namespace}; there are none"),
    ):
        with pytest.raises(ConfigurationError) as error:
            init_command(Path("drafts"), topics, from_topics=True)
        assert str(error.value) == line
    assert not Path("drafts").exists()


NULLABLE = {"default": None}
USER = {
    "type": "record",
    "name": "User",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "joinedAt", "type": ["null", "long"], **NULLABLE},
        {"name": "either", "type": ["null", "long", "string"], **NULLABLE},
    ],
}
SHIP = {
    "type": "record",
    "name": "Vessel",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "speed", "type": ["null", "float"], **NULLABLE},
        {"name": "name", "type": ["null", "string"], **NULLABLE},
    ],
}


def send(settings: Settings, endpoint: Endpoint, topic: str, schema: Schema, payload: Any, key: str = "") -> None:
    client = connect(endpoint, settings)
    producer = client.create_producer(f"persistent://{settings.pulsar.namespace}/{topic}", schema=schema)
    producer.send(payload, partition_key=key)
    client.close()
