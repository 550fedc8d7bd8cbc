"""What users see after a mistake: one line that says what is wrong and what to do, and the exit code."""

import csv
import json
import os
import re
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, HTTPServer
from io import StringIO
from pathlib import Path
from types import SimpleNamespace
from typing import NamedTuple

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from pulsar_lakehouse.cli import commands as cli
from pulsar_lakehouse.leases.leases import write_lease
from pulsar_lakehouse.pulsar.endpoint import Endpoint
from pulsar_lakehouse.records import StepRecord, keep_step
from pulsar_lakehouse.settings import Settings, load_settings
from pulsar_lakehouse.tables.lake import Lake
from tests.lake import environment, land_literally, own_home, own_topics
from tests.pipeline.projects import VISITORS, visits_project
from tests.shop import TOPICS, WRITTEN


class Outcome(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def line(self) -> str:
        """The last line on standard error."""
        return self.err.strip().splitlines()[-1]


Command = Callable[..., Outcome]


@pytest.fixture
def lakehouse(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Iterator[Command]:
    """The `lakehouse` command in this process, in an empty folder, with its own home."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(cli, "stop_spark", lambda **_: None)  # all tests share the session, and this process
    monkeypatch.setattr(os, "_exit", sys.exit)
    monkeypatch.setenv("LAKEHOUSE_HOME", str(tmp_path / "home"))
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}

    def run(*arguments: str, **environment: str) -> Outcome:
        with monkeypatch.context() as patch:
            patch.setattr(sys, "argv", ["lakehouse", *arguments])
            for name, value in environment.items():
                patch.setenv(name, value)
            with pytest.raises(SystemExit) as end:
                cli.main()
        shown = capsys.readouterr()
        assert ("Traceback" in shown.out + shown.err) == ("PYSPARK_GATEWAY_PORT" in environment)
        return Outcome(int(end.value.code or 0), shown.out, shown.err)

    yield run
    for number, handler in handlers.items():
        signal.signal(number, handler)


def refused(done: Outcome, place: str, *parts: str) -> bool:
    """Whether it ended as configuration that is wrong at this place, with one line that has all these parts."""
    begins = done.err.startswith(f"lakehouse: {place}: ")
    return (done.code, done.err.count("\n")) == (78, 1) and begins and all(part in done.err for part in parts)


@pytest.mark.parametrize(
    ("variable", "value", "place", "part"),
    [
        ("LAKEHOUSE_SPEED", "9", "LAKEHOUSE_SPEED", "LAKEHOUSE_SERVE, LAKEHOUSE_SPARK, LAKEHOUSE_WAREHOUSE"),
        ("LAKEHOUSE_HOME", "/dev/null", "home", "'/dev/null'"),
        ("LAKEHOUSE_RUN__SPEED", "9", "run.speed", "'9'"),
        ("LAKEHOUSE_RUN__RETRIES", "many", "run.retries", "'many'"),
        ("LAKEHOUSE_SERVE__USERS", '{"ada": "too"}', "serve.users.ada", "at least 8"),
        ("LAKEHOUSE_PULSAR__SERVICE_URL", "localhost:6650", "pulsar.service_url", "'localhost:6650'"),
        ("LAKEHOUSE_PULSAR__ADMIN_URL", "http://one:1,http://two:1", "pulsar.admin_url", "'http://one:1,http://two:1'"),
        ("LAKEHOUSE_PULSAR__SERVICE_URL", "pulsar://localhost:6650", "pulsar", "admin_url"),
        ("LAKEHOUSE_SPARK__CONF", "fast", "LAKEHOUSE_SPARK…", "line 1 column 1"),
    ],
)
def test_a_wrong_variable(lakehouse: Command, variable: str, value: str, place: str, part: str) -> None:
    done = lakehouse("status", **{variable: value})
    assert refused(done, place, part), done.err


def test_a_password_that_is_too_short_is_not_shown(lakehouse: Command) -> None:
    done = lakehouse("status", LAKEHOUSE_SERVE__USERS='{"ada": "s3cret"}')
    assert refused(done, "serve.users.ada"), done.err
    assert "s3cret" not in done.out + done.err


@pytest.mark.parametrize(
    ("text", "place", "part"),
    [
        ("sped = 9", "sped", "9"),
        ("[run]\nspeed = 9", "run.speed", "9"),
        ("[run]\nretries = -1", "run.retries", "-1"),
        ("[run", "lakehouse.toml", "at end of document"),
        ("pulsar = 5", "pulsar", "5"),
    ],
)
def test_a_wrong_file(lakehouse: Command, text: str, place: str, part: str) -> None:
    Path("lakehouse.toml").write_text(text)
    done = lakehouse("status")
    assert refused(done, place, part), done.err


@pytest.mark.parametrize(
    ("text", "name", "variable"),
    [
        ('[pulsar]\ntoken = "s3cret"', "pulsar.token", "LAKEHOUSE_PULSAR__TOKEN"),
        ('[postgres]\nurl = "postgresql://a:s3cret@c/d"', "postgres.url", "LAKEHOUSE_POSTGRES__URL"),
        ('[airflow]\nalert_url = "https://chat/s3cret"', "airflow.alert_url", "LAKEHOUSE_AIRFLOW__ALERT_URL"),
        (
            '[spark.conf]\n"spark.hadoop.fs.s3a.secret.key" = "s3cret"',
            "spark.conf spark.hadoop.fs.s3a.secret.key",
            "LAKEHOUSE_SPARK__CONF",
        ),
        ('[serve.users]\nada = "s3cret-1815"', "serve.users", "LAKEHOUSE_SERVE__USERS"),
    ],
)
def test_a_secret_in_a_file_is_refused_and_not_shown(lakehouse: Command, text: str, name: str, variable: str) -> None:
    Path("lakehouse.toml").write_text(text)
    done = lakehouse("status")
    assert refused(done, "lakehouse.toml", f"{name} ", variable), done.err
    assert "s3cret" not in done.out + done.err


def test_the_environment_wins_over_the_file(lakehouse: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    Path("lakehouse.toml").write_text("[run]\nretries = 1\nretry_delay = 2")
    monkeypatch.setenv("LAKEHOUSE_RUN__RETRIES", "7")
    assert (load_settings().run.retries, load_settings().run.retry_delay) == (7, 2)


@pytest.mark.parametrize(
    ("arguments", "place", "part"),
    [
        (["land", "order"], "order", "items, users, orders"),
        (["merge", "orders"], "orders", "items, users\n"),
        (["enrich", "users"], "users", "are orders\n"),
        (["serve"], "serve.users", "LAKEHOUSE_SERVE__USERS="),
        (["run", "--every", "2"], "--every 2", "2s"),
        (["run", "--every", "soon"], "--every soon", "2s"),
        (["produce", "--rate", "fast"], "--rate fast", "1000/s"),
        (["produce", "--rate", "0/s"], "--rate 0/s", "1000/s"),
        (["produce", "seed=eight"], "seed=eight", "integer"),
        (["produce", "malformed=2"], "malformed=2", "less than or equal to 1"),
        (["demo", "--domain", "bank"], "--domain bank", "favorites, ledger, shop"),
    ],
)
def test_a_wrong_argument(lakehouse: Command, arguments: list[str], place: str, part: str) -> None:
    done = lakehouse(*arguments)
    assert refused(done, place, part), done.err


@pytest.mark.parametrize("arguments", [["produce"], ["topics", "create"]])
def test_no_broker(lakehouse: Command, arguments: list[str]) -> None:
    done = lakehouse(*arguments)
    assert (done.code, done.err.count("\n")) == (1, 1)
    assert "no broker" in done.line
    assert "`lakehouse up`" in done.line
    assert "pulsar.service_url" in done.line


@pytest.mark.parametrize("arguments", [["fly"], ["run", "--speed", "9"], ["produce", "--size", "many"]])
def test_usage_errors_exit_with_2(lakehouse: Command, arguments: list[str]) -> None:
    assert lakehouse(*arguments).code == 2


@pytest.mark.parametrize(
    ("arguments", "place", "part"),
    [
        ([], "backfill", "--because"),
        (["--from", "2026-01-01", "--because", "users:1"], "backfill", "--because"),
        (["--because", "stores:1"], "--because stores:1", "users:12"),
        (["--because", "users:ada"], "--because users:ada", "BIGINT"),
        (["--from", "today"], "--from today", "2026-01-31"),
        (["--from", "2026-01-02", "--to", "2026-01-01"], "--to 2026-01-01", "--from 2026-01-02"),
    ],
)
def test_what_can_not_be_backfilled(lakehouse: Command, arguments: list[str], place: str, part: str) -> None:
    done = lakehouse("backfill", *arguments)
    assert refused(done, place, part), done.err


def test_a_run_without_a_broker(lakehouse: Command, spark: SparkSession) -> None:
    done = lakehouse("run")
    assert done.code == 1
    assert "no broker" in done.line
    assert "`lakehouse up`" in done.line


@pytest.mark.parametrize("arguments", [["run"], ["produce"], ["topics", "create"]])
def test_a_broker_that_does_not_answer(lakehouse: Command, spark: SparkSession, arguments: list[str]) -> None:
    done = lakehouse(
        *arguments,
        LAKEHOUSE_PULSAR__SERVICE_URL="pulsar://127.0.0.1:1",
        LAKEHOUSE_PULSAR__ADMIN_URL="http://127.0.0.1:1",
        LAKEHOUSE_RUN__BROKER_TIMEOUT="0.5",
    )
    assert done.code == 1
    assert done.line.startswith("lakehouse: http://127.0.0.1:1: no answer ")
    assert done.line.endswith(" 0.5 s")


@contextmanager
def refusing_broker() -> Iterator[str]:
    """The admin API of a broker that refuses every token."""

    class Refuse(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(401, "Unauthorized")
            self.send_header("Content-Length", "0")
            self.end_headers()

        do_PUT = do_POST = do_GET  # noqa: N815

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Refuse)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


@pytest.mark.parametrize("arguments", [["run"], ["topics", "create"]])
def test_a_refused_token_is_not_shown(lakehouse: Command, spark: SparkSession, arguments: list[str]) -> None:
    with refusing_broker() as url:
        urls = {"LAKEHOUSE_PULSAR__SERVICE_URL": "pulsar://127.0.0.1:1", "LAKEHOUSE_PULSAR__ADMIN_URL": url}
        done = lakehouse(*arguments, LAKEHOUSE_PULSAR__TOKEN="a.s3cret.token", **urls)
    assert done.code == 78
    assert done.line.startswith(("lakehouse: GET", "lakehouse: PUT"))
    assert done.line.endswith("the token was refused: Unauthorized")
    assert "s3cret" not in done.out + done.err


def test_a_broker_that_wants_a_token(lakehouse: Command, spark: SparkSession) -> None:
    with refusing_broker() as url:
        urls = {"LAKEHOUSE_PULSAR__SERVICE_URL": "pulsar://127.0.0.1:1", "LAKEHOUSE_PULSAR__ADMIN_URL": url}
        done = lakehouse("run", **urls)
    assert done.line.startswith(f"lakehouse: GET {url}/admin/v2/brokers/ready: no token ")
    assert "LAKEHOUSE_PULSAR__TOKEN" in done.line


def test_a_missing_topic(lakehouse: Command, spark: SparkSession, endpoint: Endpoint) -> None:
    urls = {"LAKEHOUSE_PULSAR__SERVICE_URL": endpoint.service_url, "LAKEHOUSE_PULSAR__ADMIN_URL": endpoint.admin_url}
    done = lakehouse("run", LAKEHOUSE_PULSAR__NAMESPACE="public/nowhere", LAKEHOUSE_RUN__RETRY_DELAY="1", **urls)
    assert done.code == 78
    assert "retry 1 of" not in done.err
    assert "public/nowhere/" in done.line
    assert "no such topic" in done.line
    assert "`lakehouse topics create`" in done.line


def test_a_registered_schema_that_breaks_the_contract(
    lakehouse: Command, lake: Lake, endpoint: Endpoint, tmp_path: Path
) -> None:
    without_id = replace(TOPICS[0], fields=StructType(TOPICS[0].fields.fields[1:]))
    done = lakehouse("land", **environment(own_topics(lake.settings, endpoint, tmp_path, [without_id])))
    assert done.code == 78
    assert done.line.startswith("lakehouse: items: id is not registered")


@pytest.fixture
def project(settings: Settings, endpoint: Endpoint, tmp_path: Path) -> Settings:
    """A home with empty topics in the broker."""
    return own_topics(settings, endpoint, tmp_path)


def test_a_warehouse_that_can_not_be_written(lakehouse: Command, spark: SparkSession, project: Settings) -> None:
    done = lakehouse("run", **environment(project, LAKEHOUSE_WAREHOUSE="/dev/null/warehouse"))
    assert done.code == 78
    assert "/dev/null/warehouse: Not a directory" in done.line


@pytest.mark.parametrize("command", ["merge", "up"])
def test_a_home_that_can_not_be_written(lakehouse: Command, command: str) -> None:
    done = lakehouse(command, LAKEHOUSE_HOME="/dev/null/home")
    assert (done.code, done.err.count("\n")) == (1, 1)
    assert re.match(r"lakehouse: not writable: /dev/null/home/\w+: Not a directory; LAKEHOUSE_HOME and ", done.line)


def test_a_step_of_airflow_has_the_stack_trace_of_an_unexpected_error_in_its_log(lakehouse: Command) -> None:
    done = lakehouse("up", LAKEHOUSE_HOME="/dev/null/home", PYSPARK_GATEWAY_PORT="1")
    assert done.err.startswith("Traceback (most recent call last):\n")
    assert re.match(r"lakehouse: not writable: /dev/null/home/\w+: Not a directory; LAKEHOUSE_HOME and ", done.line)


def test_the_second_of_two_runs_names_the_first(lakehouse: Command, project: Settings) -> None:
    with write_lease(project, WRITTEN):
        done = lakehouse("run", **environment(project))
    assert done.code == 75
    assert done.line.startswith("lakehouse: bronze.items is being written by pid ")
    assert done.line.endswith("UTC): wait until it ends, or stop it")


def test_before_the_first_run(lakehouse: Command, spark: SparkSession, project: Settings) -> None:
    done = {
        step: lakehouse(step, **environment(project)) for step in ("merge", "enrich", "publish", "purge", "reconcile")
    }
    assert {outcome.code for outcome in done.values()} == {1}
    named = {step: re.findall(r"\w+\.\w+|`.*?`", outcome.line) for step, outcome in done.items()}
    assert named == {
        "merge": ["bronze.items", "`lakehouse land`"],
        "enrich": ["bronze.orders", "`lakehouse land`"],
        "publish": ["gold.enriched_orders", "`lakehouse run`"],
        "purge": ["silver.items", "`lakehouse run`"],
        "reconcile": ["bronze.items", "`lakehouse run`"],
    }


def test_a_run_of_nothing(lakehouse: Command, spark: SparkSession, project: Settings) -> None:
    done = lakehouse("run", **environment(project))
    assert (done.code, done.out.count("holds")) == (0, 3)


@pytest.mark.parametrize(("reader", "writer"), [(3, 7), (99, 99)])
def test_a_table_of_a_newer_delta(lakehouse: Command, lake: Lake, tmp_path: Path, reader: int, writer: int) -> None:
    project = own_home(lake.settings, tmp_path)
    land_literally(Lake(lake.spark, project), [])
    features = {"readerFeatures": ["timeTravelToTheFuture"], "writerFeatures": ["timeTravelToTheFuture"]}
    log = Path(project.table_path("bronze.users")) / "_delta_log" / "00000000000000000001.json"
    log.write_text(json.dumps({"protocol": {"minReaderVersion": reader, "minWriterVersion": writer, **features}}))
    done = lakehouse("merge", "users", LAKEHOUSE_HOME=str(tmp_path))
    assert done.code == 78
    assert done.line.startswith("lakehouse: merge users: a table was written by a newer version of Delta Lake: ")
    assert "bronze/users" in done.line
    for arguments in (["status"], ["sql", "SELECT 1"]):
        done = lakehouse(*arguments, LAKEHOUSE_HOME=str(tmp_path))
        assert (done.code, done.line.partition(": Kernel error: ")[0]) == (1, "lakehouse: bronze.users")


def test_sql_as_csv(lakehouse: Command) -> None:
    statement = """SELECT 'a "long", value' AS text, {'id': 7, 'tags': ['x', NULL]} AS struct, NULL AS nothing,
        '{"id": 1}'::BLOB AS payload, {'at': TIMESTAMP '2026-01-02 03:04:05.678', 'raw': 'x'::BLOB} AS nested,
        true AS flag, 1.5 AS flag, [1, 2]::INT[2] AS pair"""
    assert list(csv.reader(lakehouse("sql", "--csv", statement).out.splitlines())) == [
        ["text", "struct", "nothing", "payload", "nested", "flag", "flag_1", "pair"],
        [
            'a "long", value',
            '{"id": 7, "tags": ["x", null]}',
            "",
            '{"id": 1}',
            '{"at": "2026-01-02 03:04:05.678000", "raw": "x"}',
            "true",
            "1.5",
            "[1, 2]",
        ],
    ]


HOSTILE = "SELECT e'red\\x1b[31m\\nand [bold]' AS \"na\tme\""


def test_control_characters_are_shown(lakehouse: Command) -> None:
    out = lakehouse("sql", HOSTILE).out
    assert "red\\x1b[31m\\nand [bold]" in out
    assert "na\\tme" in out


@pytest.mark.parametrize(("terminal", "text"), [(False, "red\x1b[31m\nand [bold]"), (True, r"red\x1b[31m\nand [bold]")])
def test_csv_is_exact_but_to_a_terminal(
    lakehouse: Command, monkeypatch: pytest.MonkeyPatch, terminal: bool, text: str
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: terminal)
    [_, [value]] = csv.reader(StringIO(lakehouse("sql", "--csv", HOSTILE).out))
    assert value == text


def test_an_error_is_one_line_whatever_it_quotes(lakehouse: Command) -> None:
    done = lakehouse("sql", "SELECT e'a\\x1b[31m'::INT")
    assert done.err == r"lakehouse: Conversion Error: Could not convert string 'a\x1b[31m' to INT32" + "\n"


@pytest.mark.parametrize("statement", ["SELECT 6 * 7 AS answer", "-- the answer\nSELECT 6 * 7"])
def test_sql(lakehouse: Command, statement: str) -> None:
    assert "42" in lakehouse("sql", statement).out


def test_a_struct_is_shown_as_json(lakehouse: Command) -> None:
    done = lakehouse("sql", "SELECT {'at': TIMESTAMP '2026-01-02', 'of': [1, NULL]} AS row")
    assert '{"at": "2026-01-02 00:00:00", "of": [1, null]}' in done.out


@pytest.mark.parametrize(
    ("statement", "beginning"),
    [
        ("SELEKT 1", "Parser Error: syntax error"),
        ("SELECT * FROM gold.nothing", "Catalog Error: Table with name nothing does not exist"),
        ("SELECT 'a'::INT", "Conversion Error: Could not convert string 'a'"),
    ],
)
def test_a_bad_statement(lakehouse: Command, statement: str, beginning: str) -> None:
    done = lakehouse("sql", statement)
    assert done.code == 1
    assert done.err.startswith(f"lakehouse: {beginning}")
    assert done.err.count("\n") == 1


def test_status_without_broker_and_tables_says_what_makes_them(lakehouse: Command) -> None:
    done = lakehouse("status")
    assert (done.code, done.err) == (0, "")
    topics, tables = done.out.splitlines()
    assert topics.startswith("✗ the broker can't be asked: no broker is running: start it with `lakehouse up`")
    assert tables == "Tables: none yet: `lakehouse run` makes them"


@pytest.mark.parametrize("key", ["orders:", "stores:1", "42"])
def test_a_state_is_of_a_key_of_something_declared(lakehouse: Command, key: str) -> None:
    done = lakehouse("state", key)
    assert refused(done, key, "items, users, orders", "items:123"), done.err


def test_the_state_of_facts_without_tables(lakehouse: Command) -> None:
    done = lakehouse("state", "orders:1")
    assert (done.code, done.err.count("\n")) == (1, 1)
    assert done.line.startswith("lakehouse: orders: ")
    assert "`lakehouse run`" in done.line


def test_watch_looks_again_until_it_is_interrupted(
    lakehouse: Command, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    intervals: list[float] = []

    def sleep(seconds: float) -> None:
        intervals.append(seconds)
        if len(intervals) == 2:
            raise KeyboardInterrupt
        keep_step(own_home(load_settings(), tmp_path / "home"), StepRecord(step="land orders", failure="it is late"))

    monkeypatch.setattr("pulsar_lakehouse.cli.status.time", SimpleNamespace(sleep=sleep))
    done = lakehouse("status", "--watch", "--interval", "9")
    assert (done.code, intervals) == (130, [9, 9])
    assert "✗ the last run failed: it is late\n" in done.out


def test_up_and_down_are_safe_to_repeat(lakehouse: Command) -> None:
    assert lakehouse("down") == Outcome(0, "No embedded broker was running.\n", "")


def test_the_plan_is_what_is_made_from_what(lakehouse: Command, tmp_path: Path) -> None:
    done = lakehouse("plan", "--quick", "--picture", "tables.svg", COLUMNS="200")
    assert (done.code, "gold.enriched_orders" in done.out) == (0, True)
    assert (tmp_path / "tables.svg").read_text().startswith("<svg ")


def test_lineage_is_what_is_made_from_what_and_how_columns_are(lakehouse: Command, tmp_path: Path) -> None:
    done = lakehouse("lineage", "--picture", "lineage.svg", COLUMNS="200")
    assert (done.code, "land items" in done.out) == (0, True)
    assert (tmp_path / "lineage.svg").read_text().startswith("<svg ")
    assert lakehouse("lineage", "silver.users.parent_user_id") == Outcome(
        0,
        "silver.users.parent_user_id = nullif(parentUserId, -1)\n"
        "└── bronze.users.payload.parentUserId\n"
        "    └── topic users.parentUserId\n",
        "",
    )
    assert lakehouse("lineage", "silver.users.age").code == 78


def test_all_mistakes_in_declarations_are_told_with_a_line_each(lakehouse: Command, tmp_path: Path) -> None:
    folder = visits_project(tmp_path)
    (folder / "visitors.py").write_text(VISITORS.replace('key="id"', 'key="uid"', 1) + "\nOTHERS = Entity()\n")
    assert lakehouse("plan", LAKEHOUSE_DECLARATIONS=str(folder)) == Outcome(
        78,
        "",
        "lakehouse: declarations/visitors.py:13: VISITORS: visitors: key uid: must be one of id, city\n"
        "lakehouse: declarations/visitors.py:20: OTHERS: Entity needs topic, key, columns\n",
    )
