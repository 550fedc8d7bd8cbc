import os
import signal
import stat
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from sqlalchemy import create_engine, text

from pulsar_lakehouse.errors import LakehouseError
from pulsar_lakehouse.local.airflow_database import STOP, address, create, is_ready, launch


@pytest.fixture(params=["a folder & 50% of it; it's", "x" * 120])
def data(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Path]:
    """A new database, in a folder whose name needs quoting, or whose path is too long for a socket."""
    data = tmp_path / str(request.param)
    with (tmp_path / "log").open("wb") as log:
        create(data, log)
    yield data
    assert [
        process for process in psutil.process_iter(["cmdline"]) if str(data) in (process.info["cmdline"] or ())
    ] == []


def started(data: Path) -> psutil.Popen:
    with (data.parent / "log").open("ab") as log:
        server = launch(data, log)
    deadline = time.monotonic() + 30
    while not is_ready(data):
        assert time.monotonic() < deadline
        assert server.is_running()
        time.sleep(0.05)
    return server


def end(server: psutil.Popen, by: signal.Signals = STOP) -> None:
    server.send_signal(by)
    server.wait(30)


def asked(data: Path, statement: str) -> object:
    engine = create_engine(address(data))
    try:
        with engine.begin() as connection:
            return connection.execute(text(statement)).scalar()
    finally:
        engine.dispose()


@pytest.mark.parametrize("by", [STOP, signal.SIGKILL])
def test_what_was_written_is_there_after_an_end(data: Path, by: signal.Signals) -> None:
    server = started(data)
    asked(data, "CREATE TABLE runs AS SELECT 1 AS run; SELECT 1")
    end(server, by)
    if by == signal.SIGKILL:  # its pid file is still there, and by now another process may have this pid
        noted = (data / "postmaster.pid").read_text().splitlines()
        (data / "postmaster.pid").write_text("\n".join([str(os.getpid()), *noted[1:]]))
    again = started(data)
    assert asked(data, "SELECT run FROM runs") == 1
    end(again)


def test_only_its_owner_reaches_it(data: Path) -> None:
    server = started(data)
    folder = Path((data / "postmaster.pid").read_text().splitlines()[4])
    modes = [stat.filemode(each.stat().st_mode) for each in (folder, folder / ".s.PGSQL.5432")]
    assert modes == ["drwx------", "srwx------"]
    assert server.net_connections("inet") == []
    end(server)


def test_a_database_that_can_not_be_made_says_where_to_look(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pulsar_lakehouse.local.airflow_database.ADMINISTRATOR", "pg_reserved")
    with (tmp_path / "log").open("wb") as log, pytest.raises(LakehouseError) as refused:
        create(tmp_path / "data", log)
    assert str(refused.value) == f"the database of Airflow could not be made; see {tmp_path / 'log'}"
    assert "pg_reserved" in (tmp_path / "log").read_text()
