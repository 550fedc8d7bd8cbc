"""Calls of the admin API of several brokers."""

import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pulsar
import pytest
import trustme

from pulsar_lakehouse.errors import BrokerError, RefusedError, UnreachableError
from pulsar_lakehouse.pulsar.endpoint import Endpoint, call_admin, check_certificate, connected
from pulsar_lakehouse.settings import load_settings
from tests.redirects import redirecting_brokers
from tests.tokens import token


def endpoint(admin_url: str) -> Endpoint:
    return Endpoint(service_url="pulsar://127.0.0.1:1", admin_url=admin_url)


def test_the_first_broker_is_dead_and_the_second_redirects_to_a_third(tmp_path: Path) -> None:
    settings = load_settings(home=tmp_path, pulsar={"token": token("owner")})
    with redirecting_brokers({"partitions": 2}, token=token("owner")) as url:
        answer = call_admin("GET", "persistent/public/default/events/partitions", endpoint(url), settings)
    assert answer.json() == {"partitions": 2}


def test_no_broker_answers(tmp_path: Path) -> None:
    with pytest.raises(UnreachableError) as error:
        call_admin("GET", "brokers/ready", endpoint("http://127.0.0.1:1,127.0.0.1:2"), load_settings(home=tmp_path))
    assert str(error.value) == "http://127.0.0.1:1,127.0.0.1:2: no answer from the broker: ConnectionError"


def test_a_client_that_cannot_be_closed_hides_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def close(client: pulsar.Client) -> None:
        raise pulsar.Timeout

    monkeypatch.setattr(pulsar.Client, "close", close)
    with (
        pytest.raises(BrokerError, match="no acknowledgement"),
        connected(endpoint("http://127.0.0.1:1"), load_settings(home=tmp_path)),
    ):
        raise BrokerError("no acknowledgement")


def test_each_host_has_the_path_of_the_url(tmp_path: Path) -> None:
    assert endpoint("https://one:8443,other:8443/pulsar/").cluster(load_settings(home=tmp_path)).admin_urls == [
        "https://one:8443/pulsar",
        "https://other:8443/pulsar",
    ]


def test_one_of_several_brokers_does_not_use_tls(tmp_path: Path) -> None:
    with redirecting_brokers({}, token="") as plain:
        port = plain.rpartition(":")[2]
        admin_url = f"https://127.0.0.1:{port},127.0.0.1:1"
        with pytest.raises(RefusedError) as error:
            call_admin("GET", "brokers/ready", endpoint(admin_url), load_settings(home=tmp_path))
        service = replace(endpoint("http://x"), service_url=f"pulsar+ssl://127.0.0.1:1,127.0.0.1:{port}")
        with pytest.raises(RefusedError) as other:
            check_certificate(service, load_settings(home=tmp_path))
    told = "the server there does not use TLS"
    assert str(error.value) == f"https://127.0.0.1:{port}: {told}"
    assert str(other.value) == f"pulsar+ssl://127.0.0.1:{port}: {told}"


def test_a_server_that_wants_a_certificate(tmp_path: Path) -> None:
    with mutual_tls(tmp_path) as (url, trusted, pairs):
        found = []
        for pair in ({}, pairs["strange"]):
            settings = load_settings(home=tmp_path, pulsar={"tls_trust_certs": trusted, **pair})
            with pytest.raises(RefusedError) as error:
                call_admin("GET", "brokers/ready", endpoint(url), settings)
            found.append(str(error.value))
        settings = load_settings(home=tmp_path, pulsar={"tls_trust_certs": trusted, **pairs["known"]})
        assert call_admin("GET", "brokers/ready", endpoint(url), settings).ok
    assert found == [
        f"{url}: the server wants a certificate: set pulsar.tls_certificate and pulsar.tls_key: certificate required",
        f"{url}: the server refuses the certificate of pulsar.tls_certificate, {tmp_path}/strange.pem: unknown ca",
    ]


@contextmanager
def mutual_tls(folder: Path) -> Iterator[tuple[str, Path, dict[str, dict[str, Path]]]]:
    """The URL of a server that wants a certificate, its authority, and two certificates, of which it knows one."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    known, strange = trustme.CA(), trustme.CA()
    known.cert_pem.write_to_path(folder / "trusted.pem")
    pairs = {}
    for name, authority in {"known": known, "strange": strange}.items():
        issued = authority.issue_cert(name)
        pairs[name] = {"tls_certificate": folder / f"{name}.pem", "tls_key": folder / f"{name}.key"}
        issued.cert_chain_pems[0].write_to_path(pairs[name]["tls_certificate"])
        issued.private_key_pem.write_to_path(pairs[name]["tls_key"])
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    known.issue_cert("127.0.0.1").configure_cert(context)
    known.configure_trust(context)
    context.verify_mode = ssl.CERT_REQUIRED
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.socket = context.wrap_socket(server.socket, server_side=True)
        server.handle_error = lambda *_: None  # type: ignore[method-assign]
        Thread(target=server.serve_forever, daemon=True).start()
        yield f"https://127.0.0.1:{server.server_port}", folder / "trusted.pem", pairs
        server.shutdown()
