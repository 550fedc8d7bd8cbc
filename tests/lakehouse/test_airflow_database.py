import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import create_engine, text

from lakehouse.airflow_database import is_running, remove, start, stop
from lakehouse.errors import LakehouseError


@pytest.fixture
def data(tmp_path: Path) -> Iterator[Path]:
    """A folder whose name is no name of a socket, nor one to be taken as it is in an address."""
    data = tmp_path / f"a folder & 1% of it {'x' * 60}"
    yield data
    remove(data)
    assert not data.exists()


def asked(address: str, statement: str) -> object:
    engine = create_engine(address)
    with engine.begin() as connection:
        return connection.execute(text(statement)).scalar()


def test_what_was_written_is_there_after_a_stop(data: Path) -> None:
    address = start(data)
    assert asked(address, "CREATE TABLE runs AS SELECT 1 AS run; SELECT run FROM runs") == 1
    assert start(data) == address
    assert stop(data)
    assert not stop(data)
    assert not is_running(data)
    assert asked(start(data), "SELECT run FROM runs") == 1


def test_it_starts_after_it_was_killed_and_its_process_id_is_another_s(data: Path) -> None:
    start(data)
    noted = (data / "postmaster.pid").read_text().splitlines()
    stop(data)
    (data / "postmaster.pid").write_text("\n".join([str(os.getpid()), *noted[1:]]))
    assert not is_running(data)
    assert asked(start(data), "SELECT 1") == 1


def test_only_its_owner_reaches_the_socket(data: Path) -> None:
    assert asked(start(data), "SHOW unix_socket_permissions") == "0700"
    assert asked(start(data), "SHOW listen_addresses") == ""


def test_what_keeps_it_from_starting_is_told_in_a_line(data: Path) -> None:
    start(data)
    stop(data)
    (data / "PG_VERSION").write_text("9.6\n")
    with pytest.raises(LakehouseError, match=f"see {data / 'log'}$"):
        start(data)
