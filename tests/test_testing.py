"""`run_messages`: what messages have gets into the tables, and each test has a home of its own."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from pulsar_lakehouse.contracts.schemas import RegisteredSchema
from pulsar_lakehouse.errors import ConfigurationError
from pulsar_lakehouse.pulsar.produce import NO_SCHEMA, MessageSchema
from pulsar_lakehouse.testing import registered_as, run_messages

SHIPS = """
from pulsar_lakehouse import Encoding, Entity, Topic

SHIPS = Entity(
    topic=Topic(
        "ships", "id BIGINT NOT NULL, name STRING, built TIMESTAMP_MILLIS", changelog=True, encoding=Encoding.AVRO
    ),
    key="id",
    columns="id, name, built, message.properties['sent-by'] AS sent_by",
)
BOATS = Entity(
    topic=Topic("boats", "id BIGINT NOT NULL, name STRING", topic=("boats-eu", "boats-us"), encoding=Encoding.AVRO),
    key="id",
    columns="id, name, regexp_extract(message.topic, 'boats-(.*)$', 1) AS region",
)
"""
TESTS = """
import shutil
from pathlib import Path
from pulsar_lakehouse.testing import run_messages

OLDER = {"type": "record", "name": "Ship", "fields": [{"name": "id", "type": "long"}]}
ADA = {
    "key": "1", "payload": {"id": 1, "name": "Ada", "built": 1767225600000}, "properties": {"sent-by": "me"},
    "event_time": "2026-01-01T12:00:00Z", "publish_time": "2026-01-02T12:00:00Z",
}
TWO = {"key": "2", "payload": {"id": 2}, "schema": {"type": "AVRO", "schema": OLDER}}
BYTES = {"key_bytes": "AQ==", "payload_bytes": "AA==", "schema": {"type": "BYTES"}}
EMPTY = {"payload_bytes": ""}

first = Path("first").absolute()
sql = run_messages(first, ships=[ADA, TWO, BYTES, EMPTY])
print(sql("SELECT id, name, CAST(built AS VARCHAR), sent_by FROM silver.ships ORDER BY id"))
TIMES = "CAST(event_time AS VARCHAR), CAST(nullif(publish_date, current_date) AS VARCHAR)"
print(sql(f"SELECT key, {TIMES}, schema_version FROM bronze.ships WHERE entry_id < 2 ORDER BY 1"))
print(sql("SELECT key, payload, schema_version FROM bronze.ships WHERE entry_id > 1 ORDER BY 1"))
print(sql("SELECT version FROM bronze.schemas ORDER BY 1"))
shutil.rmtree(first)
BO = {"key": "3", "payload": {"id": 3, "name": "Bo"}, "topic": "boats-us"}
sql = run_messages(Path("second").absolute(), ships=[TWO], boats=[TWO | {"topic": "boats-eu"}, BO])
print(sql("SELECT id FROM silver.ships"))
print(sql("SELECT id, name, region FROM silver.boats ORDER BY id"))
"""


@pytest.mark.spark
def test_messages_have_what_they_have_in_a_topic(tmp_path: Path) -> None:
    """And a second test does not need the folder of the first."""
    (tmp_path / "declarations").mkdir()
    (tmp_path / "declarations" / "ships.py").write_text(SHIPS)
    outside = {name: value for name, value in os.environ.items() if not name.startswith("LAKEHOUSE_")}
    done = subprocess.run([sys.executable, "-c", TESTS], cwd=tmp_path, env=outside, capture_output=True, text=True)
    assert done.stdout.splitlines() == [
        "[(1, 'Ada', '2026-01-01 00:00:00+00', 'me'), (2, None, None, None)]",
        "[('1', '2026-01-01 12:00:00+00', '2026-01-02', 0), ('2', None, None, 1)]",
        "[('AQ==', b'\\x00', None), (None, b'', 0)]",
        "[(0,), (1,)]",
        "[(2,)]",
        "[(2, None, 'eu'), (3, 'Bo', 'us')]",
    ], done.stderr


def test_schemas_get_the_versions_that_a_broker_would_give_them() -> None:
    own, other = MessageSchema("JSON", "{}"), MessageSchema("AVRO", "{}", (("owner", "me"),))
    known = RegisteredSchema(version=4, type="JSON", data="{}", registered_at=9)
    assert registered_as([own, other, NO_SCHEMA], [known]) == {
        own: known,
        other: RegisteredSchema(version=5, type="AVRO", data="{}", properties={"owner": "me"}),
    }


def test_a_publish_time_must_be_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "declarations").mkdir()
    (tmp_path / "declarations" / "ships.py").write_text(SHIPS)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigurationError, match=r"^publish_time: noon: must be a time such as"):
        run_messages(tmp_path / "home", ships=[{"payload": {"id": 1}, "publish_time": "noon"}])


def test_a_message_of_several_topics_is_in_one_of_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "declarations").mkdir()
    (tmp_path / "declarations" / "ships.py").write_text(SHIPS)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigurationError, match=r"^boats: topic: boats: must be one of boats-eu, boats-us$"):
        run_messages(tmp_path / "home", boats=[{"payload": {"id": 1}, "topic": "boats"}])
