"""The tables for SQL users: the example queries, readers other than Spark, and the endpoint as clients see it."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from datetime import date, datetime
from itertools import islice
from pathlib import Path
from typing import Any

import polars
import psutil
import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from impala.dbapi import connect
from impala.error import HiveServer2Error, OperationalError
from pyspark.sql import SparkSession
from thrift.transport.TTransport import TTransportException

from pulsar_lakehouse.inspection.query import query
from pulsar_lakehouse.jobs.steps import enriching, merging
from pulsar_lakehouse.jobs.streams import catch_up
from pulsar_lakehouse.local.processes import is_alive
from pulsar_lakehouse.progress import wait_until
from pulsar_lakehouse.settings import Settings
from pulsar_lakehouse.spark.session import submit_environment
from pulsar_lakehouse.sql_server.sandbox import landlock_version
from pulsar_lakehouse.sql_server.serve import local_folders
from pulsar_lakehouse.tables.lake import Lake
from pulsar_lakehouse.tables.stored import existing_tables
from tests.lake import environment, land_literally, own_home, versions
from tests.messages import item, order, user
from tests.mutations import mutated
from tests.personal import declare_personal
from tests.shop import ENRICHMENTS, ENTITIES, QUERIES

USER, PASSWORD = "ada", "lovelace-1815"
FEW, FEW_PASSWORD = "eve", "babbage-1791"
"""A user with few grants, and none for personal data."""
GRANTS = {USER: ["*", "pii"], FEW: ["gold.enriched_orders", "silver.users", "bronze.users"]}
SERVED = {"LAKEHOUSE_SERVE": json.dumps({"users": {USER: PASSWORD, FEW: FEW_PASSWORD}, "grants": GRANTS})}
DAY = 24 * 60
LAKEHOUSE = str(Path(sys.prefix) / "bin" / "lakehouse")

Execute = Callable[[str], list[tuple[Any, ...]]]


@pytest.fixture(scope="module")
def project(lake: Lake, tmp_path_factory: pytest.TempPathFactory) -> Settings:
    """Two users; two items, one of which costs more from minute 20 on; orders of two days, three of which wait."""
    own = own_home(lake.settings, tmp_path_factory.mktemp("sql"))
    changes = [
        user(1, "Ada", lastName="Lovelace", emailAddress="ada@example.com"),
        user(2, "Bob", lastName="Babbage", place=1),
        item(1, 1.5, category="sweet"),
        item(2, 4.0, category="sour", place=1),
        item(1, 2.0, category="sweet", when=20, place=2),
    ]
    orders = [
        order(1, place=1),
        order(2, place=2, when=30, price=2.0),
        order(3, place=3, user=2, item=2, when=DAY, price=4.0),
        order(4, place=4, user=2, when=DAY, price=2.0),
        order(5, place=5, user=9),
        order(6, place=6, user=9, when=DAY),
        order(7, place=7, item=9, when=DAY),
    ]
    land_literally(Lake(lake.spark, own), changes + orders)
    catch_up(own, merging(Lake(lake.spark, own), ENTITIES))
    catch_up(own, enriching(Lake(lake.spark, own), ENRICHMENTS))
    return own


ANSWERS: dict[str, list[tuple[Any, ...]]] = {
    "1-categories": [("sweet", 3, 5.5), ("sour", 1, 4.0)],
    "2-customers": [(2, "Bob Babbage", None, 2, 6.0), (1, "Ada Lovelace", "ada@example.com", 2, 3.5)],
    "3-days": [(date(2026, 1, 1), 2, 1), (date(2026, 1, 2), 2, 2)],
    "4-categories-by-day": [
        (date(2026, 1, 2), "sour", 1, 4.0),
        (date(2026, 1, 2), "sweet", 1, 2.0),
        (date(2026, 1, 1), "sweet", 2, 3.5),
    ],
    "5-waiting": [(9, "user missing", 2), (1, "item missing", 1)],
    "6-prices": [(1, "pie", 1.5, 2.0, 1)],
}
"""The answers to the example queries, without the times at which orders began to wait."""


def test_each_example_has_an_answer_here() -> None:
    assert sorted(path.stem for path in QUERIES.glob("*.sql")) == sorted(ANSWERS)


@pytest.mark.parametrize("name", ANSWERS)
def test_an_example(project: Settings, name: str) -> None:
    rows = query(project, (QUERIES / f"{name}.sql").read_text()).fetchall()
    assert [row[: len(expected)] for row, expected in zip(rows, ANSWERS[name], strict=True)] == ANSWERS[name]


def test_deltalake_duckdb_and_polars_read_the_rows_that_spark_reads(spark: SparkSession, project: Settings) -> None:
    path = project.table_path("gold.enriched_orders")
    rows = spark.read.format("delta").load(path).orderBy("line_item_id").toArrow().to_pylist()
    assert [row["line_item_id"] for row in rows] == [1, 2, 3, 4]
    assert DeltaTable(path).to_pyarrow_table().sort_by("line_item_id").to_pylist() == rows
    by_duckdb = query(project, "SELECT * FROM gold.enriched_orders ORDER BY line_item_id").to_arrow_table()
    assert by_duckdb.to_pylist() == rows
    assert polars.read_delta(path).sort("line_item_id").to_dicts() == rows


def test_no_feature_of_gold_shuts_a_reader_out(project: Settings) -> None:
    """Version 1 of the reader protocol, that of the first Delta Lake, has no features."""
    protocols = {name: table.protocol() for name, table in existing_tables(project) if name.startswith("gold.")}
    assert {name: protocol.min_reader_version for name, protocol in protocols.items()} == {
        "gold.backfills": 1,
        "gold.enriched_orders": 1,
    }


@pytest.fixture(scope="module")
def port(project: Settings, tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """The port of the endpoint, which must leave no process when it is told to end."""
    declared = declare_personal(tmp_path_factory.mktemp("declared"))
    write_deltalake(project.table_path("silver.vault"), pa.table({"secret": ["xyzzy"], "id": [90001]}))
    served = {**os.environ, **environment(project, LAKEHOUSE_DECLARATIONS=str(declared), **SERVED)}
    with subprocess.Popen([LAKEHOUSE, "serve"], env=served, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            line = server.stdout.readline()
            assert "jdbc:hive2://127.0.0.1:" in line
            started = psutil.Process(server.pid).children(recursive=True)
            java = next(process for process in started if process.name() == "java")
            assert {name for name in java.environ() if name.upper().startswith("LAKEHOUSE_")} <= {"LAKEHOUSE_HOME"}
            if landlock_version() >= 1:
                assert "NoNewPrivs:\t1" in Path(f"/proc/{java.pid}/status").read_text()
            yield int(line.partition("jdbc:hive2://127.0.0.1:")[2].split()[0])
            server.terminate()
            assert server.wait(timeout=30) == 130
        finally:
            server.kill()
    assert [process for process in started if is_alive(process)] == []


@pytest.mark.spark
def test_an_interrupt_ends_it_while_spark_starts(settings: Settings, tmp_path: Path) -> None:
    """By then the process is not allowed to search the system for its JVM any more."""
    own = {**os.environ, **environment(own_home(settings, tmp_path), **SERVED)}
    jvms: list[psutil.Process] = []
    with subprocess.Popen([LAKEHOUSE, "serve"], env=own, stderr=subprocess.PIPE, text=True) as server:

        def starting() -> bool:
            jvms[:] = filter(is_spark, psutil.Process(server.pid).children(recursive=True))
            return jvms != []

        try:
            assert wait_until(starting, "The JVM of Spark", timeout=120)
            server.terminate()
            _, told = server.communicate(timeout=30)
            assert (server.returncode, "lakehouse:" in told) == (130, False)
            assert wait_until(lambda: not any(map(is_alive, jvms)), "Its end", timeout=10)
        finally:
            for kill in (server.kill, *(jvm.kill for jvm in jvms)):
                with suppress(psutil.NoSuchProcess):
                    kill()


def is_spark(process: psutil.Process) -> bool:
    """Whether it is the JVM of Spark itself, not the shell or the launcher that came before."""
    with suppress(psutil.Error):
        command = process.cmdline()
        return (
            process.name() == "java" and "pyspark-shell" in command and "org.apache.spark.launcher.Main" not in command
        )
    return False


def connection_to(port: int, user: str = USER, password: str = PASSWORD) -> closing[Any]:
    """A connection that the block closes. An open one would call the server again whenever it is freed."""
    return closing(connect(host="127.0.0.1", port=port, auth_mechanism="PLAIN", user=user, password=password))


@contextmanager
def log_in(port: int, user: str = USER, password: str = PASSWORD, **more: str) -> Iterator[Execute]:
    with connection_to(port, user, password) as connection, closing(connection.cursor(configuration=more)) as cursor:

        def execute(statement: str) -> list[tuple[Any, ...]]:
            cursor.execute(statement)
            return list(cursor.fetchall())

        yield execute


@pytest.fixture(scope="module")
def execute(port: int) -> Iterator[Execute]:
    with log_in(port) as execute:
        yield execute


@pytest.mark.parametrize(("user", "password"), [(USER, "lovelace"), ("bob", PASSWORD), (USER, ""), ("", "")])
def test_others_can_not_log_in(port: int, user: str, password: str) -> None:
    with pytest.raises(TTransportException), log_in(port, user, password):
        pass


def test_tables_are_in_the_schemas_of_their_layers(execute: Execute) -> None:
    assert {row[0] for row in execute("SHOW SCHEMAS")} >= {"bronze", "silver", "gold", "quarantine"}
    assert [row[1] for row in execute("SHOW TABLES IN gold")] == ["backfills", "enriched_orders"]


@pytest.mark.parametrize("name", ANSWERS)
def test_a_client_gets_the_rows_of_the_sql_command(project: Settings, execute: Execute, name: str) -> None:
    statement = (QUERIES / f"{name}.sql").read_text()
    assert execute(statement) == [tuple(map(without_zone, row)) for row in query(project, statement).fetchall()]


def without_zone(value: Any) -> Any:
    """Timestamps in Hive's protocol have no zone. They are in UTC."""
    return value.replace(tzinfo=None) if isinstance(value, datetime) else value


def test_beeline(port: int, project: Settings) -> None:
    statement = "SELECT line_item_id, user.first_name, item.price FROM enriched_orders ORDER BY 1"
    command = [str(Path(sys.prefix) / "bin" / "beeline"), "-u", f"jdbc:hive2://127.0.0.1:{port}/gold"]
    command += ["-n", USER, "-p", PASSWORD, "--outputformat=csv2", "--silent=true", "-e", statement]
    done = subprocess.run(command, env={**os.environ, **submit_environment(project)}, capture_output=True, text=True)
    _, _, *lines = done.stdout.split()  # after its prompt, `0: jdbc:hive2://...>`
    assert lines == ["line_item_id,first_name,price", "1,Ada,1.5", "2,Ada,2.0", "3,Bob,4.0", "4,Bob,2.0"]


def test_new_rows_are_seen_at_once_and_new_tables_soon(project: Settings, execute: Execute) -> None:
    path = project.table_path("gold.notes")
    write_deltalake(path, pa.table({"note": ["first"]}))
    assert wait_until(lambda: ("gold", "notes", False) in execute("SHOW TABLES IN gold"), "A new table", timeout=20)
    write_deltalake(path, pa.table({"note": ["second"]}), mode="append")
    assert execute("SELECT note FROM gold.notes ORDER BY note") == [("first",), ("second",)]
    write_deltalake(path, pa.table({"note": ["third"], "by": ["Ada"]}), mode="append", schema_mode="merge")
    assert execute("SELECT note FROM gold.notes WHERE by = 'Ada'") == [("third",)]


def test_folders_that_are_no_tables_do_not_end_it(project: Settings, execute: Execute) -> None:
    gold = Path(project.table_path("gold"))
    for name in ("enriched_orders.bak", "damaged"):
        (gold / name / "_delta_log").mkdir(parents=True)
        (gold / name / "_delta_log" / f"{0:020}.json").write_text("damaged")
    write_deltalake(project.table_path("gold.beside"), pa.table({"note": ["first"]}))
    assert wait_until(lambda: ("gold", "beside", False) in execute("SHOW TABLES IN gold"), "A new table", timeout=20)
    names = {row[1] for row in execute("SHOW TABLES IN gold")}
    for name in ("enriched_orders.bak", "damaged", "beside"):
        shutil.rmtree(gold / name)
    assert names & {"enriched_orders", "enriched_orders.bak", "damaged"} == {"enriched_orders"}


@pytest.mark.parametrize(
    ("root", "folders"),
    [
        ("/lake", [Path("/lake")]),
        ("file:///lake", [Path("/lake")]),
        ("file:/lake", [Path("/lake")]),
        ("s3a://lake", []),
    ],
)
def test_only_a_warehouse_on_this_machine_is_a_folder(root: str, folders: list[Path]) -> None:
    assert local_folders(root) == folders


@pytest.mark.parametrize(
    "statement",
    [
        "DESCRIBE gold.enriched_orders",
        "DESCRIBE HISTORY gold.enriched_orders",
        "SHOW COLUMNS IN gold.enriched_orders",
        "EXPLAIN SELECT * FROM gold.enriched_orders",
        "WITH a AS (SELECT 1 AS x) SELECT * FROM a",
        "SELECT count(*) FROM gold.enriched_orders VERSION AS OF 0",
        "SELECT x FROM silver.users LATERAL VIEW explode(array(1, 2)) t AS x",
        "SELECT * FROM (SELECT id, 1 AS x FROM silver.users) PIVOT (sum(x) FOR id IN (1, 2))",
        "FROM silver.users |> SELECT id",
    ],
)
def test_what_reads_tables_is_answered(execute: Execute, statement: str) -> None:
    assert execute(statement) != []


def test_tools_can_list_the_columns(port: int) -> None:
    with connection_to(port) as connection, closing(connection.cursor()) as cursor:
        columns = cursor.get_table_schema("backfills", "gold")
    assert [name for name, *_ in columns][:3] == ["request", "event", "topic"]


ATTACKS = [
    # Read other files
    "SELECT * FROM text.`/etc/passwd`",
    "SELECT * FROM spark_catalog.text.`/etc/passwd`",
    "SELECT * FROM delta.`{gold}`",
    "SELECT (SELECT max(value) FROM text.`/etc/passwd`)",
    "WITH a AS (SELECT * FROM text.`/etc/passwd`) SELECT * FROM a",
    "SELECT * FROM IDENTIFIER('text.`/etc/passwd`')",
    "EXECUTE IMMEDIATE 'SELECT * FROM text.`/etc/passwd`'",
    "BEGIN SELECT * FROM text.`/etc/passwd`; END",
    "DESCRIBE TABLE text.`/etc/passwd`",
    "DESCRIBE DETAIL '{gold}'",
    "SELECT * FROM gold.backfills WITH (path = '{gold}')",
    "SELECT * FROM table_changes_by_path('{gold}', 0)",
    "CREATE TEMPORARY VIEW v USING text OPTIONS (path '/etc/passwd')",
    "CREATE TABLE gold.t USING text LOCATION '/etc/passwd'",
    "LOAD DATA LOCAL INPATH '/etc/passwd' INTO TABLE gold.enriched_orders",
    "SELECT from_avro(X'00', '\"int\"', map('avroSchemaUrl', 'file:///etc/passwd'))",
    "SELECT from_xml('<a/>', 'b INT', map('rowValidationXSDPath', '/etc/passwd'))",
    "SELECT xpath_string('<!DOCTYPE a SYSTEM \"file:///etc/passwd\"><a/>', 'a')",
    "ADD FILE '/etc/passwd'",
    # Change tables
    "DROP TABLE gold.enriched_orders",
    "DROP SCHEMA gold CASCADE",
    "ALTER TABLE gold.enriched_orders SET TBLPROPERTIES ('a' = 'b')",
    "DELETE FROM gold.enriched_orders",
    "UPDATE gold.enriched_orders SET price = 0",
    "TRUNCATE TABLE gold.enriched_orders",
    "INSERT INTO gold.enriched_orders SELECT * FROM gold.enriched_orders",
    "WITH a AS (SELECT * FROM gold.enriched_orders) INSERT INTO gold.enriched_orders SELECT * FROM a",
    "MERGE INTO silver.users t USING silver.users s ON t.id = s.id WHEN MATCHED THEN DELETE",
    "OPTIMIZE gold.enriched_orders",
    "VACUUM gold.enriched_orders RETAIN 0 HOURS",
    "RESTORE TABLE gold.enriched_orders TO VERSION AS OF 0",
    "CREATE TABLE gold.t (a INT) USING delta",
    "INSERT OVERWRITE DIRECTORY '/tmp/t' USING csv SELECT 1",
    # Run other code
    "SELECT reflect('java.lang.System', 'getProperty', 'lakehouse.users')",
    "SELECT java_method('java.lang.System', 'getProperty', 'lakehouse.users')",
    "SELECT try_reflect('java.lang.System', 'exit', 0)",
    "SELECT builtin.reflect('java.lang.System', 'getProperty', 'lakehouse.users')",
    "SELECT system.builtin.reflect('java.lang.System', 'getProperty', 'lakehouse.users')",
    "SELECT IDENTIFIER('reflect')('java.lang.System', 'getProperty', 'lakehouse.users')",
    "SELECT TRANSFORM(id) USING 'cat /etc/passwd' AS (x) FROM silver.users",
    "ADD JAR '/tmp/t.jar'",
    "CREATE TEMPORARY FUNCTION f AS 'java.lang.Runtime'",
    "SELECT '${{system:lakehouse.users}}', '${{env:HOME}}'",
    # Change settings and caches
    "SET",
    "SET spark.sql.runSQLOnFiles = true",
    "SET spark.sql.catalog.x = org.apache.spark.sql.execution.datasources.v2.jdbc.JDBCTableCatalog",
    "CACHE TABLE gold.enriched_orders",
]


@pytest.mark.parametrize("attack", ATTACKS)
def test_what_is_no_reading_of_tables_is_refused(project: Settings, execute: Execute, attack: str) -> None:
    before = versions(project)
    with pytest.raises(OperationalError, match="not allowed: this endpoint only reads tables") as error:
        execute(attack.format(gold=project.table_path("gold.enriched_orders")))
    assert "\tat " not in str(error.value)
    assert versions(project) == before


@pytest.fixture(scope="module")
def execute_few(port: int) -> Iterator[Execute]:
    with log_in(port, FEW, FEW_PASSWORD) as execute:
        yield execute


def test_what_is_not_granted_does_not_exist(port: int, execute_few: Execute) -> None:
    assert [row[0] for row in execute_few("SHOW SCHEMAS")] == ["bronze", "default", "gold", "silver"]
    assert [row[1] for row in execute_few("SHOW TABLES IN silver")] == ["users"]
    assert [row[1] for row in execute_few("SHOW TABLES IN gold")] == ["enriched_orders"]
    for statement in ("SELECT * FROM silver.vault", "DESCRIBE silver.vault", "SHOW COLUMNS IN silver.vault"):
        with pytest.raises(OperationalError, match="TABLE_OR_VIEW_NOT_FOUND"):
            execute_few(statement)
    with pytest.raises(OperationalError, match="quarantine is not allowed"):
        execute_few("SELECT * FROM quarantine.waiting_orders")
    with connection_to(port, FEW, FEW_PASSWORD) as connection, closing(connection.cursor()) as cursor:
        cursor.get_tables("%")
        assert sorted(row[1:3] for row in cursor.fetchall()) == [
            ("bronze", "users"),
            ("gold", "enriched_orders"),
            ("silver", "users"),
        ]
    with pytest.raises(HiveServer2Error, match="SCHEMA_NOT_FOUND"), log_in(port, FEW, FEW_PASSWORD, **IN_QUARANTINE):
        pass


IN_QUARANTINE = {"use:database": "quarantine"}


def test_personal_data_is_masked(execute: Execute, execute_few: Execute) -> None:
    names = "SELECT first_name, last_name, email_address FROM silver.users ORDER BY id"
    assert execute(names) == [("Ada", "Lovelace", "ada@example.com"), ("Bob", "Babbage", None)]
    masked = [("Ada", "***", "***"), ("Bob", "***", None)]
    assert execute_few(names) == masked
    for more in ("VERSION AS OF 1", "AS one JOIN silver.users AS other USING (id)"):
        wider = names.replace("first_name, last_name, email_address", "*").replace("users ORDER", f"users {more} ORDER")
        assert "Lovelace" not in str(execute_few(wider))
    joined = "SELECT DISTINCT user.first_name, user.last_name, user.email_address FROM gold.enriched_orders ORDER BY 1"
    assert execute_few(joined) == masked
    assert execute_few("SELECT count(payload), count(properties) FROM bronze.users") == [(0, 0)]


@pytest.mark.parametrize(
    "statement",
    [
        "SELECT id FROM silver.users WHERE email_address = 'ada@example.com'",
        "SELECT line_item_id FROM gold.enriched_orders WHERE user.last_name LIKE 'Love%'",
        "SELECT max(last_name) AS name FROM silver.users HAVING name LIKE 'L%'",
        "SELECT id FROM silver.users WHERE last_name IN (SELECT last_name FROM silver.users WHERE last_name > '*z')",
        "SELECT a.id FROM silver.users a JOIN (VALUES ('Lovelace')) AS b(name) ON a.last_name = b.name",
        "WITH q AS (SELECT * FROM silver.users) SELECT id FROM q WHERE substr(email_address, 1, 1) = 'a'",
        "SELECT id FROM silver.users VERSION AS OF 1 WHERE last_name = 'Lovelace'",
        "FROM silver.users |> WHERE last_name = 'Lovelace' |> SELECT id",
        "SELECT id FROM silver.users u WHERE EXISTS (SELECT 1 FROM silver.users v WHERE v.last_name = 'Lovelace')",
        "SELECT u.id FROM silver.users u, LATERAL (SELECT u.last_name AS name) WHERE name = 'Lovelace'",
    ],
)
def test_a_condition_sees_only_the_mask(execute_few: Execute, statement: str) -> None:
    assert execute_few(statement) == []


def test_no_answer_of_many_has_what_is_hidden(project: Settings, execute_few: Execute) -> None:
    gold = project.table_path("gold.enriched_orders")
    tables = (
        *("silver.users", "bronze.users", "gold.enriched_orders") * 3,
        *("silver.vault", "silver.users_history", "vault", "spark_catalog.silver.vault", "quarantine.waiting_orders"),
        *("silver.users VERSION AS OF 0", "system.information_schema.tables", "global_temp.vault"),
        *(f"delta.`{gold}`", f"parquet.`{gold}`", "text.`/etc/passwd`", "range(3)"),
    )
    columns = ("email_address", "last_name", "user", "user.last_name", "payload", "secret", "properties", "_metadata")
    statements = [*ATTACKS, *islice(mutated(70, tables=tables, columns=columns, dialect="spark"), 150)]
    for statement in statements:
        try:
            told = str(execute_few(statement.format(gold=gold)))
        except (OperationalError, HiveServer2Error, KeyError, IndexError, ValueError) as error:
            told = str(error)
        assert not [each for each in ("Lovelace", "ada@example", "Babbage", "xyzzy", "90001") if each in told], (
            statement
        )


ANYBODY = "org.apache.hive.service.auth.AnonymousAuthenticationProviderImpl"

SETTINGS = {
    "set:hiveconf:spark.sql.runSQLOnFiles": "true",
    "set:hiveconf:fs.file.impl": "true",
    "set:hiveconf:spark.sql.session.timeZone": "${env:HOME}",
    "use:database": "${system:lakehouse.users}",
    "set:system:hive.server2.custom.authentication.class": ANYBODY,
    "set:hivevar:a": "b",
    "set:metaconf:a": "b",
    "hive.downloaded.resources.dir": "/tmp/t",
}


@pytest.mark.parametrize("name", SETTINGS)
def test_settings_of_a_client_are_refused(port: int, name: str) -> None:
    refused = pytest.raises(HiveServer2Error, match=f"setting {name} is not allowed")
    with refused, log_in(port, **{name: SETTINGS[name]}):
        pass
    with pytest.raises(TTransportException), log_in(port, password="lovelace"):
        pass


def test_settings_of_a_statement_are_refused(port: int) -> None:
    refused = pytest.raises(HiveServer2Error, match=r"setting spark.sql.runSQLOnFiles is not allowed")
    with connection_to(port) as connection, closing(connection.cursor()) as cursor, refused:
        cursor.execute("SELECT 1", configuration={"spark.sql.runSQLOnFiles": "true"})


def test_a_client_may_choose_its_time_zone(port: int) -> None:
    with log_in(port, **{"set:hiveconf:spark.sql.session.timeZone": "Asia/Tokyo"}) as in_tokyo:
        assert in_tokyo("SELECT current_timezone()") == [("Asia/Tokyo",)]
