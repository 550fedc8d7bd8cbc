"""Who may log in to an endpoint with narrow limits, and how much they may ask for. Its answers: test_sql.py."""

import json
import os
import socket
import ssl
import struct
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import closing
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID
from impala.dbapi import connect
from impala.error import HiveServer2Error, OperationalError
from thrift.transport.TTransport import TTransportException

from pulsar_lakehouse.errors import ConfigurationError
from pulsar_lakehouse.progress import wait_until
from pulsar_lakehouse.settings import Settings
from pulsar_lakehouse.sql_server.serve import serving
from tests.lake import environment, own_home

LAKEHOUSE = str(Path(sys.prefix) / "bin" / "lakehouse")
USERS = {"ada": "lovelace-1815", "bob": "babbage-1791"}
LIMITS = {"sessions_per_user": 2, "max_queries": 1, "query_timeout": 10, "max_result": "1m"}
ENDLESS = "SELECT count(*) FROM range(10000000000000)"


class Files(NamedTuple):
    certificate: Path
    key: Path


def certificate_for(address: str, folder: Path) -> Files:
    """A self-signed certificate, and its key."""
    key, now = ec.generate_private_key(ec.SECP256R1()), datetime.now(UTC)
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, address)])
    builder = x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
    builder = builder.not_valid_before(now - timedelta(days=1)).not_valid_after(now + timedelta(days=1))
    names = x509.SubjectAlternativeName([x509.IPAddress(ip_address(address))])
    signed = builder.add_extension(names, critical=True).sign(key, SHA256())
    files = Files(folder / "certificate.pem", folder / "key.pem")
    files.certificate.write_bytes(signed.public_bytes(Encoding.PEM))
    files.key.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    return files


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    return certificate_for("127.0.0.1", tmp_path_factory.mktemp("certificate"))


@pytest.fixture(scope="module")
def port(settings: Settings, files: Files, tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """The port of an endpoint that listens on all addresses."""
    tls = {"tls_certificate": str(files.certificate), "tls_key": str(files.key)}
    told = json.dumps({"host": "0.0.0.0", "users": USERS, **tls, **LIMITS})
    own = {**os.environ, **environment(own_home(settings, tmp_path_factory.mktemp("served")), LAKEHOUSE_SERVE=told)}
    with subprocess.Popen([LAKEHOUSE, "serve"], env=own, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            url = server.stdout.readline().split()[4]
            assert (url[:20], url[-10:]) == ("jdbc:hive2://0.0.0.0", "/;ssl=true")
            yield int(url.split(":")[3].partition("/")[0])
        finally:
            server.terminate()
            server.wait(timeout=30)


@pytest.fixture(scope="module")
def strangers(port: int) -> Sequence[socket.socket]:
    """600 connections that send nothing."""
    connected = [socket.create_connection(("127.0.0.1", port)) for _ in range(600)]
    for each in connected:
        each.setblocking(False)
    return connected


def is_open(connection: socket.socket) -> bool:
    try:
        return connection.recv(1) != b""
    except BlockingIOError:
        return True
    except OSError:
        return False


@pytest.fixture
def log_in(port: int, files: Files) -> Any:
    def log_in(user: str, password: str = "") -> closing[Any]:
        tls = {"use_ssl": True, "ca_cert": str(files.certificate)}
        plain = {"auth_mechanism": "PLAIN", "user": user, "password": password or USERS[user]}
        return closing(connect(host="127.0.0.1", port=port, **tls, **plain))

    return log_in


def test_strangers_keep_nobody_out(strangers: Sequence[socket.socket], log_in: Any) -> None:
    with log_in("ada") as connection, closing(connection.cursor()) as cursor:
        cursor.get_databases()
        assert ("gold",) in [row[:1] for row in cursor.fetchall()]
    assert sum(map(is_open, strangers)) <= 64


def test_a_query_that_takes_too_long_is_ended_and_others_wait_for_it(log_in: Any) -> None:
    with log_in("ada") as connection, closing(connection.cursor()) as long, closing(connection.cursor()) as other:
        long.execute_async(ENDLESS)
        other.execute_async("SELECT 1")
        assert other.status() == "PENDING_STATE"
        with pytest.raises(OperationalError, match=r"exceeded the time limit and was cancelled \(serve.query_t"):
            long._wait_to_finish()


@pytest.mark.parametrize(
    "large",
    [
        "SELECT id FROM range(1000000)",
        "SELECT repeat('a', 1000000) FROM range(10)",
        "SELECT repeat('a', 100000) FROM range(0, 100, 1, 50)",
    ],
)
def test_a_result_that_is_too_large_is_refused(log_in: Any, large: str) -> None:
    """However well the result compresses, and however many partitions it has."""
    with log_in("ada") as connection, closing(connection.cursor()) as cursor:
        with pytest.raises(OperationalError, match=r"serve\.max_result|spark\.driver\.maxResultSize \(1024"):
            cursor.execute(large)
        cursor.execute("SELECT repeat('a', 100000) FROM range(5)")
        assert len(cursor.fetchall()) == 5


def test_a_user_has_so_many_sessions(log_in: Any) -> None:
    with log_in("ada") as connection, closing(connection.cursor()), closing(connection.cursor()):
        with (
            log_in("ada") as another,
            pytest.raises(HiveServer2Error, match="ada has 2 sessions open, which is the limit"),
        ):
            another.cursor()
        with log_in("bob") as of_bob:
            of_bob.cursor().close()
    with log_in("ada") as connection, closing(connection.cursor()):
        pass


def test_who_guesses_must_wait(log_in: Any) -> None:
    for password in (*(f"guess-{n}" for n in range(5)), USERS["bob"]):
        with pytest.raises(TTransportException, match="Error validating the login"), log_in("bob", password) as guess:
            guess.cursor()
    with log_in("ada") as connection, closing(connection.cursor()):
        pass


def test_nobody_may_announce_much_before_a_password(port: int, files: Files) -> None:
    context = ssl.create_default_context(cafile=str(files.certificate))
    with (
        socket.create_connection(("127.0.0.1", port)) as plain,
        context.wrap_socket(plain, server_hostname="127.0.0.1") as connection,
    ):
        connection.sendall(b"\x01" + struct.pack(">i", 100 * 2**20))
        assert b"Invalid payload header length" in connection.recv(1000)


def test_strangers_are_not_there_for_long(strangers: Sequence[socket.socket]) -> None:
    assert wait_until(lambda: not any(map(is_open, strangers)), "The end of connections", timeout=15)


@pytest.mark.parametrize(
    ("more", "line"),
    [
        (
            {"host": "0.0.0.0"},
            "serve.host 0.0.0.0: connections from other machines must be encrypted: set serve.tls_certificate "
            "and serve.tls_key, or 127.0.0.1",
        ),
        ({"host": "no.such.invalid"}, "serve.host no.such.invalid: no such address: "),
        ({"tls_certificate": Path("none.pem")}, "serve.tls_certificate none.pem: No such file or directory"),
        ({"tls_certificate": Path(__file__)}, f"serve.tls_certificate {__file__}: must be a certificate, in PEM"),
        ({"tls_key": Path(__file__)}, f"serve.tls_key {__file__}: must be a key without a passphrase, in PEM"),
        ({"tls_key": "another"}, "serve.tls_key {0}: must be the key of "),
    ],
)
def test_what_nobody_is_served_with(
    settings: Settings, files: Files, tmp_path: Path, more: dict[str, Any], line: str
) -> None:
    another = certificate_for("127.0.0.1", tmp_path).key
    given = {name: another if value == "another" else value for name, value in more.items()}
    with_files = {} if "host" in given else {"tls_certificate": files.certificate, "tls_key": files.key}
    serve = settings.serve.model_copy(update={"users": USERS, **with_files, **given})
    with pytest.raises(ConfigurationError) as refused, serving(settings.model_copy(update={"serve": serve}), {}):
        pass
    assert str(refused.value).startswith(line.format(another))
