"""What users see after a mistake: one line that says what is wrong and what to do, and the exit code."""

import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from pulsar_lakehouse.settings import Settings, load_settings
from pulsar_lakehouse.tables.lake import Lake
from tests.cli.outcome import Command
from tests.lake import environment, land_literally, own_home


@pytest.mark.parametrize(
    ("variable", "value", "line"),
    [
        (
            "LAKEHOUSE_SPEED",
            "9",
            "LAKEHOUSE_SPEED: no such setting; there are LAKEHOUSE_AIRFLOW, LAKEHOUSE_CACHE, LAKEHOUSE_CHECKPOINTS, "
            "LAKEHOUSE_DECLARATIONS, LAKEHOUSE_HOME, LAKEHOUSE_METRICS, LAKEHOUSE_PARAMETERS, LAKEHOUSE_POSTGRES, "
            "LAKEHOUSE_PULSAR, LAKEHOUSE_RUN, LAKEHOUSE_S3, LAKEHOUSE_SERVE, LAKEHOUSE_SPARK, LAKEHOUSE_WAREHOUSE",
        ),
        ("LAKEHOUSE_HOME", "/dev/null", "home: must be a folder (given: '/dev/null')"),
        ("LAKEHOUSE_RUN__SPEED", "9", "run.speed: no such setting (given: '9')"),
        (
            "LAKEHOUSE_RUN__RETRIES",
            "many",
            "run.retries: Input should be a valid integer, unable to parse string as an integer (given: 'many')",
        ),
        (
            "LAKEHOUSE_SERVE__USERS",
            '{"ada": "short"}',
            "serve.users.ada: Value should have at least 8 items after validation, not 5",
        ),
        (
            "LAKEHOUSE_PULSAR__SERVICE_URL",
            "localhost:6650",
            "pulsar.service_url: must be pulsar://host:port, or pulsar://host:port,host:port for several "
            "(given: 'localhost:6650')",
        ),
        (
            "LAKEHOUSE_PULSAR__ADMIN_URL",
            "http://one:8080,http://other:8080",
            "pulsar.admin_url: must be http://host:port, or http://host:port,host:port for several "
            "(given: 'http://one:8080,http://other:8080')",
        ),
        (
            "LAKEHOUSE_PULSAR__SERVICE_URL",
            "pulsar://localhost:6650",
            "pulsar: service_url and admin_url come together: set both, or neither for the embedded broker",
        ),
        (
            "LAKEHOUSE_SPARK__CONF",
            "fast",
            "LAKEHOUSE_SPARK…: not JSON: Expecting value: line 1 column 1 (char 0)",
        ),
    ],
)
def test_a_wrong_variable(lakehouse: Command, variable: str, value: str, line: str) -> None:
    done = lakehouse("status", **{variable: value})
    assert (done.code, done.err) == (78, f"lakehouse: {line}\n")


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("sped = 9", "sped: no such setting (given: 9)"),
        ("[run]\nspeed = 9", "run.speed: no such setting (given: 9)"),
        ("[run]\nretries = -1", "run.retries: Input should be greater than or equal to 0 (given: -1)"),
        ("[run", "lakehouse.toml: not TOML: Expected ']' at the end of a table declaration (at end of document)"),
        (
            "pulsar = 5",
            "pulsar: Input should be a valid dictionary or instance of Pulsar (given: 5)",
        ),
        (
            '[pulsar]\ntoken = "abc"',
            "lakehouse.toml: pulsar.token is a secret: set LAKEHOUSE_PULSAR__TOKEN instead",
        ),
        (
            '[postgres]\nurl = "postgresql://a:b@c/d"',
            "lakehouse.toml: postgres.url is a secret: set LAKEHOUSE_POSTGRES__URL instead",
        ),
        (
            '[airflow]\nalert_url = "https://chat/hook"',
            "lakehouse.toml: airflow.alert_url is a secret: set LAKEHOUSE_AIRFLOW__ALERT_URL instead",
        ),
        (
            '[spark.conf]\n"spark.hadoop.fs.s3a.secret.key" = "x"',
            "lakehouse.toml: spark.conf spark.hadoop.fs.s3a.secret.key is a secret: set LAKEHOUSE_SPARK__CONF instead",
        ),
        (
            '[serve.users]\nada = "lovelace-1815"',
            "lakehouse.toml: serve.users is a secret: set LAKEHOUSE_SERVE__USERS instead",
        ),
    ],
)
def test_a_wrong_file(lakehouse: Command, text: str, line: str) -> None:
    Path("lakehouse.toml").write_text(text)
    done = lakehouse("status")
    assert (done.code, done.err) == (78, f"lakehouse: {line}\n")


def test_the_environment_wins_over_the_file(lakehouse: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    Path("lakehouse.toml").write_text("[run]\nretries = 1\nretry_delay = 2")
    monkeypatch.setenv("LAKEHOUSE_RUN__RETRIES", "7")
    assert (load_settings().run.retries, load_settings().run.retry_delay) == (7, 2)


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["land", "order"], "order: not declared; there are items, users, orders"),
        (["merge", "orders"], "orders: not declared; there are items, users"),
        (["enrich", "users"], "users: not declared; there are orders"),
        (["serve"], """serve.users: nobody could log in: set LAKEHOUSE_SERVE__USERS='{"ada": "her password"}'"""),
        (["run", "--every", "2"], "--every 2: must be a number with ms, s, m or h, such as 2s"),
        (["run", "--every", "soon"], "--every soon: must be a number with ms, s, m or h, such as 2s"),
        (["produce", "--rate", "fast"], "--rate fast: must be messages a second, such as 1000/s"),
        (["produce", "--rate", "0/s"], "--rate 0/s: must be messages a second, such as 1000/s"),
        (
            ["produce", "seed=eight"],
            "seed=eight: Input should be a valid integer, unable to parse string as an integer",
        ),
        (["produce", "malformed=2"], "malformed=2: Input should be less than or equal to 1"),
        (["demo", "--domain", "bank"], "--domain bank: no such domain; there are favorites, ledger, shop"),
    ],
)
def test_a_wrong_argument(lakehouse: Command, arguments: list[str], line: str) -> None:
    done = lakehouse(*arguments)
    assert (done.code, done.err) == (78, f"lakehouse: {line}\n")


@pytest.mark.parametrize("arguments", [["produce"], ["topics", "create"]])
def test_no_broker(lakehouse: Command, arguments: list[str]) -> None:
    done = lakehouse(*arguments)
    assert (done.code, done.err) == (
        1,
        "lakehouse: no broker is running: start it with `lakehouse up`, or set pulsar.service_url and "
        "pulsar.admin_url\n",
    )


@pytest.mark.parametrize("arguments", [["fly"], ["run", "--speed", "9"], ["produce", "--size", "many"]])
def test_usage_errors_exit_with_2(lakehouse: Command, arguments: list[str]) -> None:
    assert lakehouse(*arguments).code == 2


@pytest.mark.parametrize("arguments", [["run"], ["produce"], ["topics", "create"]])
def test_a_broker_that_does_not_answer(lakehouse: Command, spark: SparkSession, arguments: list[str]) -> None:
    done = lakehouse(
        *arguments,
        LAKEHOUSE_PULSAR__SERVICE_URL="pulsar://127.0.0.1:1",
        LAKEHOUSE_PULSAR__ADMIN_URL="http://127.0.0.1:1",
        LAKEHOUSE_RUN__BROKER_TIMEOUT="0.5",
    )
    assert (done.code, done.line) == (1, "lakehouse: http://127.0.0.1:1: no answer from the broker in 0.5 s")


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
    assert done.line == (
        f"lakehouse: GET {url}/admin/v2/brokers/ready: no token was sent: set LAKEHOUSE_PULSAR__TOKEN: Unauthorized"
    )


@pytest.mark.parametrize("command", ["merge", "up"])
def test_a_home_that_can_not_be_written(lakehouse: Command, command: str) -> None:
    done = lakehouse(command, LAKEHOUSE_HOME="/dev/null/home")
    assert (done.code, done.err.count("\n")) == (1, 1)
    assert re.match(r"lakehouse: not writable: /dev/null/home/\w+: Not a directory; LAKEHOUSE_HOME and ", done.line)


def test_a_step_of_airflow_has_the_stack_trace_of_an_unexpected_error_in_its_log(lakehouse: Command) -> None:
    done = lakehouse("up", LAKEHOUSE_HOME="/dev/null/home", PYSPARK_GATEWAY_PORT="1")
    assert done.err.startswith("Traceback (most recent call last):\n")
    assert re.match(r"lakehouse: not writable: /dev/null/home/\w+: Not a directory; LAKEHOUSE_HOME and ", done.line)


def test_before_the_first_run(lakehouse: Command, spark: SparkSession, project: Settings) -> None:
    done = {
        step: lakehouse(step, **environment(project)) for step in ("merge", "enrich", "publish", "purge", "reconcile")
    }
    assert {outcome.code for outcome in done.values()} == {1}
    assert {step: outcome.line for step, outcome in done.items()} == {
        "merge": "lakehouse: bronze.items is not there yet: run `lakehouse land` first",
        "enrich": "lakehouse: bronze.orders is not there yet: run `lakehouse land` first",
        "publish": "lakehouse: gold.enriched_orders is not there yet: run `lakehouse run` first",
        "purge": "lakehouse: silver.items is not there yet: run `lakehouse run` first",
        "reconcile": "lakehouse: bronze.items is not there yet: run `lakehouse run` first",
    }


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


def test_an_error_is_one_line_whatever_it_quotes(lakehouse: Command) -> None:
    done = lakehouse("sql", "SELECT e'a\\x1b[31m'::INT")
    assert done.err == r"lakehouse: Conversion Error: Could not convert string 'a\x1b[31m' to INT32" + "\n"
