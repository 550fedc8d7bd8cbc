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
from tests.cli.outcome import Command, Outcome
from tests.lake import environment, land_literally, own_home


def refused(done: Outcome, place: str, *parts: str) -> bool:
    """Whether it ended as configuration that is wrong at this place, with one line that has all these parts."""
    begins = done.err.startswith(f"lakehouse: {place}: ")
    return (done.code, done.err.count("\n")) == (78, 1) and begins and all(part in done.err for part in parts)


@pytest.mark.parametrize(
    ("variable", "value", "place", "part"),
    [
        (
            "LAKEHOUSE_SPEED",
            "9",
            "LAKEHOUSE_SPEED",
            "LAKEHOUSE_SERVE, LAKEHOUSE_SPARK, LAKEHOUSE_UNMASKED, LAKEHOUSE_WAREHOUSE",
        ),
        ("LAKEHOUSE_HOME", "/dev/null", "LAKEHOUSE_HOME", "'/dev/null'"),
        ("LAKEHOUSE_RUN__SPEED", "9", "LAKEHOUSE_RUN__SPEED", "'9'"),
        ("LAKEHOUSE_RUN__RETRIES", "many", "LAKEHOUSE_RUN__RETRIES", "'many'"),
        ("LAKEHOUSE_SERVE__USERS", '{"ada": "too"}', "LAKEHOUSE_SERVE__USERS", "ada: must have 8 characters or more"),
        ("LAKEHOUSE_PULSAR__SERVICE_URL", "localhost:6650", "LAKEHOUSE_PULSAR__SERVICE_URL", "'localhost:6650'"),
        (
            "LAKEHOUSE_PULSAR__ADMIN_URL",
            "http://one:1,http://two:1",
            "LAKEHOUSE_PULSAR__ADMIN_URL",
            "'http://one:1,http://two:1'",
        ),
        ("LAKEHOUSE_PULSAR__SERVICE_URL", "pulsar://localhost:6650", "pulsar", "admin_url"),
        ("LAKEHOUSE_SPARK__CONF", "fast", "LAKEHOUSE_SPARK…", "line 1 column 1"),
    ],
)
def test_a_wrong_variable(lakehouse: Command, variable: str, value: str, place: str, part: str) -> None:
    done = lakehouse("status", **{variable: value})
    assert refused(done, place, part), done.err


def test_a_password_that_is_too_short_is_not_shown(lakehouse: Command) -> None:
    done = lakehouse("status", LAKEHOUSE_SERVE__USERS='{"ada": "s3cret"}')
    assert refused(done, "LAKEHOUSE_SERVE__USERS"), done.err
    assert "s3cret" not in done.out + done.err


@pytest.mark.parametrize(
    ("text", "place", "part"),
    [
        ("sped = 9", "lakehouse.toml:1: sped", "9"),
        ("[run]\nspeed = 9", "lakehouse.toml:2: run.speed", "9"),
        ("[run]\nretries = -1", "lakehouse.toml:2: run.retries", "-1"),
        ("[run", "lakehouse.toml", "at end of document"),
        ("pulsar = 5", "lakehouse.toml:1: pulsar", "5"),
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
    done, line = lakehouse("status"), 1 if text.startswith("[serve.users") else 2
    assert refused(done, f"lakehouse.toml:{line}", f"{name} ", variable), done.err
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
        (["demo", "--domain", "bank"], "--domain bank", "favorites, inventory, ledger, payments, shop"),
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


@pytest.mark.parametrize("command", ["merge", "up"])
def test_a_home_that_can_not_be_written(lakehouse: Command, command: str) -> None:
    done = lakehouse(command, LAKEHOUSE_HOME="/dev/null/home")
    assert (done.code, done.err.count("\n")) == (1, 1)
    assert re.match(r"lakehouse: not writable: /dev/null/home/\w+: Not a directory; LAKEHOUSE_HOME and ", done.line)


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
