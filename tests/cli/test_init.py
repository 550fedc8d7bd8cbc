"""The projects that `lakehouse init` makes."""

import json
import os
import subprocess
import sys
import tomllib
from base64 import b64encode
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet
from pulsar.schema import AvroSchema, BytesSchema, Schema
from pyspark.sql.types import DataType, StructType

from pulsar_lakehouse.cli.init import init_command
from pulsar_lakehouse.cli.plan import plan_command
from pulsar_lakehouse.cli.send import send_command
from pulsar_lakehouse.contracts.topics import Encoding, KeyEncoding, Topic
from pulsar_lakehouse.errors import ConfigurationError
from pulsar_lakehouse.inspection.query import query
from pulsar_lakehouse.jobs.steps import run_all
from pulsar_lakehouse.pipeline.loading import pipeline_of
from pulsar_lakehouse.pulsar.endpoint import Endpoint, call_admin, connect
from pulsar_lakehouse.pulsar.produce import Encoded, MessageSchema
from pulsar_lakehouse.pulsar.topic_admin import create_published
from pulsar_lakehouse.settings import Settings, load_settings
from pulsar_lakehouse.tables.lake import Lake
from tests.java_client import JavaClient, Pair, key_value, message, schema
from tests.lake import environment, own_topics, read


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


ID, NAMED, DAY = (
    json.dumps({"type": "record", "name": "Row", "fields": [field]})
    for field in (
        {"name": "id", "type": "long"},
        {"name": "name", "type": "string"},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
    )
)


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
        "Left out: My-Texts: has no schema with fields, and no message with a JSON object"
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


def protobuf_schema() -> dict[str, Any]:
    """A store: an id, other ids, and a place with a name."""
    file = FileDescriptorProto(name="store.proto", package="shop", syntax="proto3")
    store = file.message_type.add(name="Store")
    place = store.nested_type.add(name="Place").field.add(name="name", number=1, type="TYPE_STRING", label=1)
    fields = [
        store.field.add(name="id", number=1, type="TYPE_UINT64", label=1),
        store.field.add(name="others", number=2, type="TYPE_SINT32", label=3),
        store.field.add(name="place", number=3, type="TYPE_MESSAGE", label=1, type_name=".shop.Store.Place"),
    ]
    for field in (place, *fields):
        field.json_name = field.name
    described = b64encode(FileDescriptorSet(file=[file]).SerializeToString()).decode()
    root = {"rootMessageTypeName": "shop.Store", "rootFileDescriptorName": "store.proto"}
    return schema("PROTOBUF_NATIVE", json.dumps({"fileDescriptorSet": described, **root}))


AS_PEOPLE_HAVE_THEM: list[tuple[str, dict[str, Any], list[dict[str, Any]], str]] = [
    ("orders-v1", schema("JSON", ID), [message({"id": 7}, key="7")], "orders_v1: id BIGINT by id"),
    (
        "dbserver1.inventory.customers",
        schema("BYTES"),
        [
            message(b'{"op": "c", "after": {"id": 7}, "source": {"lsn": 5, "ts_ms": 1769860800000}}', key='{"id":7}'),
            message(b'{"op": "d", "before": {"id": 7}, "source": {"lsn": 6}}', key='{"id":7}'),
            message(b"", key='{"id":7}'),
        ],
        "customers: id BIGINT, __source_lsn BIGINT, __source_ts_ms TIMESTAMP by id in JSON",
    ),
    ("user_events", schema("BYTES"), [message(b'{"page": "/"}')], "user_events: page STRING"),
    ("UserEvents", schema("BYTES"), [message(b'{"page": "/"}')], "user_events_2: page STRING"),
    ("user-events", schema("BYTES"), [message(b'{"page": "/"}')], "user_events_3: page STRING"),
    ("users", schema("BYTES"), [message(b'{"id": "a"}', key="a")], "users: id STRING by id"),
    ("users_history", schema("BYTES"), [message(b'{"at": 1}')], "users_history_2: at BIGINT"),
    ("schemas", schema("BYTES"), [message(b'{"at": 1}')], "schemas_2: at BIGINT"),
    ("mit Leer, nein?", schema("BYTES"), [message(b'{"at": 1}')], ""),
    ("Größe ist 50%?", schema("BYTES"), [message(b'{"at": 1}')], "gr_e_ist_50: at BIGINT"),
    ("2026-01", schema("BYTES"), [message(b'{"at": 1}')], "topic_2026_01: at BIGINT"),
    ("json-in-strings", schema("STRING"), [message('{"id": 7}', key="7")], "json_in_strings: id BIGINT by id"),
    ("texts", schema("STRING"), [message("hello", key="7")], "texts: value STRING as STRING"),
    ("numbers", schema("INT64"), [message(7)], "numbers: value BIGINT"),
    ("times", schema("INSTANT"), [message("1970-01-01T00:00:01Z")], "times: value TIMESTAMP"),
    ("nothing", schema("BYTES"), [message(b"\xff")], ""),
    ("byte-keys", schema("BYTES"), [message(b'{"id": 7}', key=b"7")], "byte_keys: id BIGINT by id in BYTES"),
    (
        "json-as-byte-keys",
        schema("AVRO", ID),
        [message({"id": 7}, key=b'{"id": 7}')],
        "json_as_byte_keys: id BIGINT as AVRO by id in BYTES",
    ),
    (
        "pairs-of-keys",
        schema("BYTES"),
        [message(b'{"id": 7, "currency": "EUR"}', key='[7,"EUR"]')],
        "pairs_of_keys: id BIGINT, currency STRING by id, currency",
    ),
    (
        "separated",
        key_value(schema("AVRO", ID), schema("AVRO", NAMED), "SEPARATED"),
        [message(Pair({"id": 7}, {"name": "Ada"}))],
        "separated: name STRING, id BIGINT as AVRO by id",
    ),
    (
        "separated-text",
        key_value(schema("STRING"), schema("JSON", NAMED), "SEPARATED"),
        [message(Pair("Ada", {"name": "Ada"}))],
        "separated_text: name STRING by name",
    ),
    (
        "inline",
        key_value(schema("INT32"), schema("JSON", NAMED), "INLINE"),
        [message(Pair(7, {"name": "Ada"}))],
        "inline: name STRING by key",
    ),
    ("inline-numbers", key_value(schema("STRING"), schema("INT32"), "INLINE"), [message(Pair("a", 7))],
     "inline_numbers: value INT by key"),
    ("protobuf", protobuf_schema(), [message({"id": 7})],
     "protobuf: id DECIMAL(20,0), others ARRAY<INT>, place STRUCT<name: STRING> as PROTOBUF_NATIVE"),
    ("days", schema("JSON", DAY), [message({"day": 20_000})], "days: day DATE"),
    ("days-in-avro", schema("AVRO", DAY), [message({"day": 20_000})], "days_in_avro: day DATE as AVRO"),
    (
        "odd-names",
        schema("BYTES"),
        [message(b'{"user.id": 7, "@type": "x", "where": {"http.method": "GET", "$oid": 1}}')],
        "odd_names: user.id BIGINT, @type STRING, where STRUCT<http.method: STRING, $oid: BIGINT>",
    ),
]  # fmt: skip


def drafted(topic: Topic, keys: tuple[str, ...]) -> str:
    """A draft, as the table above tells it."""
    fields = ", ".join(f"{each.name} {told(each.dataType)}" for each in topic.fields)
    encoding = f" as {topic.encoding}" if topic.encoding != Encoding.JSON else ""
    key = f" by {', '.join(keys)}" if keys else ""
    form = f" in {topic.key_encoding}" if topic.key_encoding != KeyEncoding.TEXT else ""
    return f"{topic.name}: {fields}{encoding}{key}{form}"


def told(kind: DataType) -> str:
    if isinstance(kind, StructType):
        return f"STRUCT<{', '.join(f'{each.name}: {told(each.dataType)}' for each in kind)}>"
    return kind.simpleString().upper()


def test_topics_as_people_have_them_are_drafted_as_they_are(
    folder: Path,
    lake: Lake,
    endpoint: Endpoint,
    java: JavaClient,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    own = own_topics(lake.settings, endpoint, folder, [])
    for name, value in environment(own).items():
        monkeypatch.setenv(name, value)
    for topic, written_as, messages, _ in AS_PEOPLE_HAVE_THEM:
        java.send(f"persistent://{own.pulsar.namespace}/{topic}", messages, written_as)
    create_published(["enriched_sales"], endpoint, own)

    init_command(Path("drafts"), from_topics=True)
    assert [line for line in capsys.readouterr().out.splitlines() if line.startswith("Left out")] == [
        "Left out: enriched_sales: has no schema with fields, and no message with a JSON object",
        "Left out: mit Leer, nein?: a topic with a comma or a space at an end of its name can't be read",
        "Left out: nothing: has no schema with fields, and no message with a JSON object",
    ]
    monkeypatch.chdir("drafts")
    project = own.model_copy(update={"declarations": Path("declarations").resolve()})
    pipeline = pipeline_of(project)
    keys = {each.name: each.keys for each in pipeline.entities}
    expected = {topic: told for topic, _, _, told in AS_PEOPLE_HAVE_THEM if told}
    assert {each.own_name: drafted(each, keys.get(each.name, ())) for each in pipeline.topics} == expected

    plan_command()
    own_lake = Lake(lake.spark, project)
    rows = {each.name: each.rows for each in run_all(own_lake)}
    assert {name: count for name, count in rows.items() if name.startswith("land ")} == {
        f"land {expected[topic].partition(':')[0]}": len(messages)
        for topic, _, messages, _ in AS_PEOPLE_HAVE_THEM
        if topic in expected
    }
    assert [(row["topic"], row["reason"]) for row in read(project, "quarantine.malformed")] == []


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
