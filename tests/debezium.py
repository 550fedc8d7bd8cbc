"""Debezium, which sends the changes of a Postgres to Pulsar: by Pulsar's own connector, or as Debezium Server does."""

import json
import os
import signal
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from tempfile import TemporaryDirectory

import psutil
import psycopg
import pyspark

from pulsar_lakehouse.downloads.artifacts import downloaded, pulsar_home
from pulsar_lakehouse.jvm.java import java_home
from pulsar_lakehouse.jvm.scala import compiled
from pulsar_lakehouse.local import airflow_database, broker
from pulsar_lakehouse.local.processes import HOST, free_port
from pulsar_lakehouse.progress import wait_until
from pulsar_lakehouse.pulsar.endpoint import call_admin
from pulsar_lakehouse.settings import Settings

LIST = Path(__file__).with_name("debezium.xml")
SERVER = Path(__file__).with_name("debezium_server.scala")
LOGICAL = {"listen_addresses": HOST, "wal_level": "logical", "track_commit_timestamp": "on", "fsync": "off"}
"""Postgres' settings for replication by Debezium, and for tests."""
SMALL = ("-Xmx400m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
MARKS = "marks"
"""A table of the database that is replicated. `Connector.wait_until_sent` adds rows to it."""


class Form(StrEnum):
    """Who sends the changes, and how they are encoded."""

    JSON = "Pulsar's connector, JSON"
    AVRO = "Pulsar's connector, Avro"
    SERVER = "Debezium Server, JSON with Connect's schemas"
    SERVER_PLAIN = "Debezium Server, JSON without them"


AVRO = "io.confluent.connect.avro.AvroConverter"
KEEP_NULL = "replace.null.with.default"
"""Of Connect's JSON: unless it is false, the messages have a column's default in place of NULL. Avro always has it."""
OF_FORM: dict[Form, dict[str, str]] = {
    Form.JSON: {"truncate.handling.mode": "include", KEEP_NULL: "false"},
    Form.AVRO: {"truncate.handling.mode": "include", "key.converter": AVRO, "value.converter": AVRO},
    Form.SERVER: {"skipped.operations": "none", f"value.converter.{KEEP_NULL}": "false"},
    Form.SERVER_PLAIN: {
        "skipped.operations": "none",
        f"value.converter.{KEEP_NULL}": "false",
        "decimal.handling.mode": "string",  # without a schema, no one knows the scale of precise ones
        **{f"{part}.converter.schemas.enable": "false" for part in ("key", "value", "header")},
    },
}


@contextmanager
def logical_postgres(folder: Path) -> Iterator[str]:
    """The address of a new Postgres whose log can be replicated, for the block. The folder has its own log.

    Its data are elsewhere: if another user runs it, that user must reach them. Each pytest closes the folder of all.
    """
    with TemporaryDirectory(prefix="lakehouse-") as reachable:
        yield from _postgres(Path(reachable) / "data", folder / "postgres.log")


def _postgres(data: Path, told: Path) -> Iterator[str]:
    port = free_port()
    with told.open("wb") as log:
        airflow_database.create(data, log)
        options = {**LOGICAL, "port": str(port)}
        given = [text for name, value in options.items() for text in ("-c", f"{name}={value}")]
        server = airflow_database.launch(data, log, *given)
    try:
        assert wait_until(lambda: airflow_database.is_ready(data), "Starting Postgres", timeout=30)
        yield f"postgresql://postgres@{HOST}:{port}/postgres"
    finally:
        server.send_signal(signal.SIGINT)
        server.wait(30)


class Connector:
    """Sends the changes of tables to topics `<name>.public.<table>` in the namespace of the settings."""

    def __init__(
        self,
        name: str,
        url: str,
        settings: Settings,
        folder: Path,
        *,
        tables: Sequence[str],
        form: Form = Form.JSON,
        options: Mapping[str, str] | None = None,
    ) -> None:
        """The options are Debezium's own. Schemas of any kind are allowed, as `widening` needs it."""
        self.name, self.url, self.settings, self.folder, self.form = name, url, settings, folder, form
        self.options, self.process, self._lives = {**OF_FORM[form], **(options or {})}, None, 0
        self.tables = ",".join(f"public.{table}" for table in (*tables, MARKS))
        self._database = psycopg.connect(url, autocommit=True)
        self.folder.mkdir(parents=True, exist_ok=True)

    process: psutil.Popen | None

    def start(self) -> None:
        """Start it: with a snapshot, or where it was when it ended."""
        with (self.folder / "connector.log").open("ab") as log:
            self.process = psutil.Popen(
                self._command(), stdout=log, stderr=log, cwd=pulsar_home(self.settings.cache), start_new_session=True
            )

    def stop(self) -> None:
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """End it like a power cut: some messages that it has sent, it sends again when it is started."""
        self._end(signal.SIGKILL)

    def forget(self) -> None:
        """Drop the slot, and all memory of what was sent. The next start makes another slot, and takes a snapshot."""
        assert self.process is None
        self._database.execute(f"SELECT pg_drop_replication_slot('{self.name}')")
        self._lives += 1

    def close(self) -> None:
        """End it and drop the slot, which would hold the log back."""
        self.kill()
        self._database.execute(
            "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE slot_name = %s", [self.name]
        )
        self._database.close()

    def wait_until_sent(self, timeout: float = 90) -> None:
        """Wait until the broker has all that was committed before, seconds at most."""
        assert wait_until(lambda: self._flushed() is not None, "Waiting for the slot", timeout), self._told()
        self._mark()
        (committed,) = self._one("SELECT pg_current_wal_lsn() - '0/0'::pg_lsn")
        assert committed is not None

        def is_sent() -> bool:
            assert self.process is not None, "it is not running"
            assert self.process.poll() is None, self._told()
            self._mark()
            flushed = self._flushed()
            return flushed is not None and flushed >= committed

        assert wait_until(is_sent, f"Waiting until {self.name} has sent all", timeout), self._told()

    def _mark(self) -> None:
        """Commit something: Debezium tells the slot only of the transaction before the last one that it has sent."""
        self._database.execute(f"INSERT INTO {MARKS} DEFAULT VALUES")

    def _flushed(self) -> int | None:
        found = self._one(
            "SELECT max(confirmed_flush_lsn - '0/0'::pg_lsn) FROM pg_replication_slots WHERE slot_name = %s", self.name
        )
        return None if found[0] is None else int(found[0])

    def _one(self, query: str, *given: str) -> tuple[int | None]:
        row: tuple[int | None] | None = self._database.execute(query, given).fetchone()
        assert row is not None
        return row

    def _end(self, how: int) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(how)
            self.process.wait(30)
        self.process = None

    def _told(self) -> str:
        """The last lines of its logs."""
        logs = [path.read_text(errors="replace")[-3_000:] for path in sorted(self.folder.rglob("*.log"))]
        return "\n".join([f"{self.name} ({self.form}):", *logs])

    def _command(self) -> list[str | Path]:
        database = psycopg.conninfo.conninfo_to_dict(self.url)
        configuration = {
            "database.hostname": str(database["host"]),
            "database.port": str(database["port"]),
            "database.user": str(database["user"]),
            "database.password": "",
            "database.dbname": str(database["dbname"]),
            "database.server.name": self.name,
            "topic.prefix": self.name,
            "plugin.name": "pgoutput",
            "slot.name": self.name,
            "publication.name": self.name,
            "publication.autocreate.mode": "filtered",
            "table.include.list": self.tables,
            **self.options,
        }
        of_pulsar = self.form in (Form.JSON, Form.AVRO)
        return self._pulsars_own(configuration) if of_pulsar else self._server(configuration)

    def _pulsars_own(self, configuration: Mapping[str, str]) -> list[str | Path]:
        """Pulsar's archive of the connector, run by Pulsar."""
        home = pulsar_home(self.settings.cache)
        (jar,) = downloaded("connector", self.settings.cache, listed=LIST)
        archive = self.folder / "debezium.nar"
        if not archive.exists():
            archive.symlink_to(jar)
        tenant, namespace = self.settings.pulsar.namespace.split("/")
        source = {
            "tenant": tenant,
            "namespace": namespace,
            "name": f"{self.name}-{self._lives}",
            "topicName": f"persistent://{tenant}/{namespace}/{self.name}-unused",
            "archive": str(archive),
            "configs": {**configuration, "pulsar.service.url": self.settings.pulsar.service_url},
        }
        properties = {
            "log4j.configurationFile": home / "conf" / "log4j2.yaml",
            "pulsar.log.dir": self.folder,
            "java.io.tmpdir": self.folder,
            "pulsar.functions.java.instance.jar": home / "instances" / "java-instance.jar",
            "pulsar.functions.python.instance.file": home / "instances" / "python-instance" / "python_instance_main.py",
        }
        return [
            *(java_home() / "bin" / "java", *SMALL, "-cp", f"{home / 'lib'}/*"),
            *(f"-D{name}={value}" for name, value in properties.items()),
            *("org.apache.pulsar.functions.LocalRunner", "--runtime", "THREAD", "--sourceConfig", json.dumps(source)),
            *("--brokerServiceUrl", self.settings.pulsar.service_url or ""),
            *("--webServiceUrl", self.settings.pulsar.admin_url or ""),
        ]

    def _server(self, configuration: Mapping[str, str]) -> list[str | Path]:
        """Debezium's engine, whose changes our Scala program sends as Debezium Server does."""
        cache = self.settings.cache
        libraries = [*downloaded("engine", cache, listed=LIST), *sorted((pulsar_home(cache) / "lib").glob("*.jar"))]
        jar = compiled(SERVER, cache, uses=libraries)
        scala = next((Path(pyspark.__file__).parent / "jars").glob("scala-library-*.jar"))
        own = {
            "name": self.name,
            "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
            "offset.storage": "org.apache.kafka.connect.storage.FileOffsetBackingStore",
            "offset.storage.file.filename": str(self.folder / f"offsets-{self._lives}"),
        }
        file = self.folder / "debezium.properties"
        file.write_text("".join(f"{name}={value}\n" for name, value in {**own, **configuration}.items()))
        return [
            *(java_home() / "bin" / "java", *SMALL, "-cp", os.pathsep.join(map(str, [jar, scala, *libraries]))),
            *("lakehouse.tests.DebeziumServer", self.settings.pulsar.service_url or ""),
            *(self.settings.pulsar.namespace, file),
        ]


def allow_any_schema(settings: Settings) -> None:
    """Let topics of the namespace have schemas of any kind.

    By default, the broker refuses those of a column that widens, and Pulsar's connector ends.
    """
    path = f"namespaces/{settings.pulsar.namespace}/schemaCompatibilityStrategy"
    call_admin("PUT", path, broker.endpoint(settings), settings, body="ALWAYS_COMPATIBLE")
