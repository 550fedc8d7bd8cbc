"""What a client sees of each fault."""

import socket
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import pytest
import requests

from tests.network.proxy import Fault, Proxy, proxied

ANSWER = b"0123456789" * 20


class Answering(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", str(len(ANSWER)))
        self.end_headers()
        self.wfile.write(ANSWER)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def proxy() -> Iterator[Proxy]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Answering) as server:
        Thread(target=server.serve_forever, args=[0.01], daemon=True).start()
        with proxied(server.server_port) as made:
            yield made
        server.shutdown()


@pytest.mark.parametrize(
    ("fault", "seen"),
    [
        (Fault.REFUSED, {"ConnectionError"}),
        (Fault.CUT, {"ConnectionError", "ChunkedEncodingError", "partly", "whole"}),
        (Fault.TRUNCATED, {"ConnectionError", "ChunkedEncodingError", "partly", "whole"}),
        (Fault.UNANSWERED, {"ReadTimeout", "ConnectionError", "whole"}),
        (Fault.UNREAD, {"ReadTimeout", "ConnectionError", "whole"}),
        (Fault.SLOW, {"whole"}),
        (Fault.DELAYED, {"whole", "ReadTimeout"}),
    ],
)
def test_a_fault(proxy: Proxy, fault: Fault, seen: set[str]) -> None:
    proxy.strike([fault])
    found = [get(proxy) for _ in range(8)]
    assert set(found) <= seen
    assert proxy.struck[fault] > 2
    proxy.heal()
    assert get(proxy) == "whole"


def test_a_seed_gives_the_same_faults(proxy: Proxy) -> None:
    seen = []
    for _ in range(2):
        proxy._times = 0
        proxy.strike([Fault.REFUSED, Fault.CUT, Fault.TRUNCATED], share=0.5)
        seen.append([get(proxy) for _ in range(20)])
    assert seen[0] == seen[1]
    assert 0 < seen[0].count("whole") < 20


def test_a_connection_that_is_stalled_goes_on_or_stays_lost(proxy: Proxy) -> None:
    waiting = [socket.create_connection(("127.0.0.1", proxy.port)) for _ in range(12)]
    proxy.strike([Fault.UNREAD])
    for each in waiting:
        each.sendall(b"GET / HTTP/1.1\r\nHost: any\r\n\r\n")
        each.settimeout(1)
    while proxy.struck[Fault.UNREAD] < 6:
        time.sleep(0.01)
    proxy.heal()
    got = [answers(each) for each in waiting]
    assert 0 < sum(got) < len(got)


def answers(connection: socket.socket) -> bool:
    try:
        return connection.recv(1) == b"H"
    except TimeoutError:
        return False
    finally:
        connection.close()


def get(proxy: Proxy) -> str:
    try:
        return "whole" if requests.get(proxy.url, timeout=0.3).content == ANSWER else "partly"
    except requests.RequestException as error:
        return type(error).__name__
