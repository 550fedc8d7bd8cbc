"""What the product says when a server answers in part, or not at all. Each wait for the network has an end."""

import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from threading import Thread

import pytest

from pulsar_lakehouse import postgres
from pulsar_lakehouse.bronze.pulsar import reading
from pulsar_lakehouse.bronze.pulsar.admin import Admin
from pulsar_lakehouse.bronze.pulsar.options import Cluster, NoAnswerError
from pulsar_lakehouse.bronze.pulsar.positions import BEGINNING, Position
from pulsar_lakehouse.errors import LakehouseError, UnreachableError
from pulsar_lakehouse.pulsar.endpoint import Endpoint, call_admin
from pulsar_lakehouse.settings import load_settings
from tests.bronze.broker_topics import Topics, range_of

WHOLE = b'HTTP/1.1 200 OK\r\nContent-Length: 17\r\n\r\n{"partitions": 1}'

PAGE = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 6\r\n\r\n<html>"


@contextmanager
def server(answer: Callable[[socket.socket], object]) -> Iterator[int]:
    """The port of a server that calls this for each connection, and then ends it."""

    def serve() -> None:
        while True:
            try:
                connection, _ = listening.accept()
            except OSError:
                return
            with connection:
                answer(connection)

    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = Thread(target=serve, daemon=True)
        thread.start()
        yield listening.getsockname()[1]
        listening.shutdown(socket.SHUT_RDWR)
        thread.join()


@pytest.mark.parametrize("wrong", [*(WHOLE[:length] for length in (5, 20, 30, 41, 50)), PAGE], ids=range(6))
def test_an_answer_of_the_admin_api_that_is_cut_off_or_of_others(tmp_path: Path, wrong: bytes) -> None:
    def answer(connection: socket.socket) -> None:
        connection.recv(65536)
        connection.sendall(wrong)

    with server(answer) as port:
        endpoint = Endpoint(service_url="pulsar://127.0.0.1:1", admin_url=f"http://127.0.0.1:{port}")
        with pytest.raises(UnreachableError) as error:
            call_admin("GET", "persistent/public/default/events/partitions", endpoint, load_settings(home=tmp_path))
    assert str(error.value).startswith(f"http://127.0.0.1:{port}: no answer from the broker: ")


def test_an_entry_whose_answer_is_cut_off() -> None:
    """Without its last headers, a marker would be taken for a message."""

    def answer(connection: socket.socket) -> None:
        connection.recv(65536)
        connection.sendall(b"HTTP/1.1 200 OK\r\nX-Pulsar-num-batch-message: 2\r\nX-Pulsar-mar")

    with server(answer) as port:
        admin = Admin(Cluster(service_url="pulsar://127.0.0.1:1", admin_url=f"http://127.0.0.1:{port}"))
        with pytest.raises(NoAnswerError) as error:
            admin.entry("persistent://public/default/events", Position(1, 2))
    assert str(error.value) == f"http://127.0.0.1:{port}: no answer from the broker: ConnectionError"


def test_a_read_does_not_outlast_its_timeout_by_questions(topics: Topics, monkeypatch: pytest.MonkeyPatch) -> None:
    """No message comes, and the admin API, which is asked why, answers only the first question."""
    monkeypatch.setattr(reading, "Admin", partial(Admin, timeout=(1, 1)))
    monkeypatch.setattr(reading, "POLL_SECONDS", 0.1)
    topic = topics.create()
    (sent,) = topics.send(topic, b"0")
    planned = range_of(topic, BEGINNING, [sent, Position(sent.ledger, 5)])

    def answer(connection: socket.socket) -> None:
        if b"transactionBufferStats" in connection.recv(65536):
            connection.sendall(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n")
        connection.recv(65536)

    with server(answer) as port:
        began = time.monotonic()
        with pytest.raises(NoAnswerError, match=": no message for"):
            topics.read_range(planned, readTimeout=1.5, adminUrl=f"http://127.0.0.1:{port}")
    assert time.monotonic() - began < 6


def test_a_postgres_that_hangs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(postgres, "ANSWER_SECONDS", 0.3)

    def welcome(connection: socket.socket) -> None:
        while len(connection.recv(1000)) == 8:  # asks whether we encrypt
            connection.sendall(b"N")
        connection.sendall(b"R\0\0\0\x08\0\0\0\0Z\0\0\0\x05I")
        while connection.recv(1000):
            pass

    def ask() -> None:
        with postgres.postgres_transaction(settings, "orders", needed="") as cursor:
            cursor.execute("SELECT 1")

    with server(welcome) as port:
        settings = load_settings(home=tmp_path, postgres={"url": f"postgresql://ada:secret@127.0.0.1:{port}/shop"})
        with pytest.raises(LakehouseError) as error:
            ask()
    assert str(error.value) == f"Postgres, orders: 127.0.0.1:{port} has not answered for 0.3 s"
