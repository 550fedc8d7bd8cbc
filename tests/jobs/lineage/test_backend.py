"""A backend gets the events, unless it is down: then one line says so, and nothing waits for it."""

import json
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from pulsar_lakehouse.contracts.topics import Topic
from pulsar_lakehouse.errors import ConfigurationError
from pulsar_lakehouse.jobs.lineage.backend import backend, close_backend, is_disabled
from pulsar_lakehouse.jobs.lineage.flows import landed
from pulsar_lakehouse.jobs.lineage.runs import StepRuns
from pulsar_lakehouse.settings import Pulsar, Settings
from tests.lake import own_home


@pytest.fixture(autouse=True)
def unconfigured(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    monkeypatch.setattr("os.environ", {"HOME": str(tmp_path)})
    monkeypatch.chdir(tmp_path)
    close_backend()  # other tests have looked for one
    yield
    close_backend()


@pytest.fixture
def runs(settings: Settings, tmp_path: Path) -> StepRuns:
    pulsar = Pulsar(service_url="pulsar://there:6650", admin_url="http://there:8080")
    return StepRuns(
        own_home(settings, tmp_path).model_copy(update={"pulsar": pulsar}), landed(Topic("stores", "id BIGINT"))
    )


def kept(home: Path) -> list[str]:
    return [json.loads(line)["eventType"] for line in (home / "lineage" / "land stores.jsonl").read_text().splitlines()]


def test_a_backend_gets_each_event(runs: StepRuns, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    got: list[Any] = []

    class Marquez(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            got.append((self.path, json.loads(self.rfile.read(int(self.headers["Content-Length"])))["eventType"]))
            self.send_response(201)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Marquez)
    Thread(target=server.serve_forever, daemon=True).start()
    monkeypatch.setenv("OPENLINEAGE_URL", f"http://127.0.0.1:{server.server_port}")
    runs.start()
    runs.fail("no disk")
    close_backend()
    server.shutdown()
    assert got == [("/api/v1/lineage", "START"), ("/api/v1/lineage", "FAIL")]
    assert kept(tmp_path) == ["START", "FAIL"]


def test_a_backend_that_is_down_is_told_once_and_slows_nothing(
    runs: StepRuns, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "openlineage.yml").write_text(
        json.dumps({"transport": {"type": "http", "url": "http://127.0.0.1:9", "retry": {"total": 0}}})
    )
    backend()
    began = time.monotonic()
    for _ in range(3):
        runs.start()
        runs.fail("no disk")
    assert time.monotonic() - began < 2
    close_backend()
    assert capsys.readouterr().err == (
        "Lineage: the backend (http) does not take events: ConnectionError. The pipeline goes on without it.\n"
    )
    assert kept(tmp_path) == ["START", "FAIL"] * 3


def test_rounds_without_rows_are_not_told(runs: StepRuns, tmp_path: Path) -> None:
    runs.start(tell=False)
    runs.complete(0)
    assert not (tmp_path / "lineage").exists()
    runs.start(tell=False)
    runs.complete(2)
    runs.start()
    runs.abort()
    assert kept(tmp_path) == ["START", "COMPLETE", "START", "ABORT"]


def test_a_full_disk_stops_no_step(runs: StepRuns, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "lineage").write_text("")
    runs.start()
    runs.complete(2)
    assert capsys.readouterr().err.count("Lineage: an event is missing: FileExistsError") == 1


@pytest.mark.parametrize("text", ["", "not: [yaml", "facets: {}"])
def test_a_configuration_without_a_transport_stops_the_start(
    text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "lineage.yml").write_text(text)
    monkeypatch.setenv("OPENLINEAGE_CONFIG", "lineage.yml")
    with pytest.raises(ConfigurationError, match=r"^lineage.yml: must be YAML that names a transport of OpenLineage$"):
        backend()


def test_a_wrong_transport_stops_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENLINEAGE__TRANSPORT__TYPE", "pigeon")
    with pytest.raises(ConfigurationError, match=r"^the configuration of OpenLineage: .*pigeon"):
        backend()


def test_it_can_be_disabled(
    runs: StepRuns, settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENLINEAGE_DISABLED", "true")
    silent = StepRuns(own_home(settings, tmp_path), landed(Topic("stores", "id BIGINT")))
    silent.start()
    silent.complete(2)
    assert is_disabled()
    assert not (tmp_path / "lineage").exists()
