"""A real HTTP server that geocodes: it is slow, fails, answers nonsense or hangs up, by what it is asked."""

import json
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

import httpx

from pulsar_lakehouse.contracts.services import Service

CITIES = {"Rua A 1": "Porto", "Torstr. 1": "Berlin"}


class Geocoder(ThreadingHTTPServer):
    """It knows `CITIES`, answers `null` for other addresses, and gets worse by what an address says of it."""

    daemon_threads = True
    request_queue_size = 200

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.lock, self.is_down = threading.Lock(), False
        self.calls: list[str] = []
        """The addresses that it was asked for, one after the other."""
        self.times: list[float] = []
        self.now, self.most = 0, 0
        """Calls at this moment, and the most at a time."""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    @property
    def counts(self) -> Counter[str]:
        return Counter(self.calls)


class Handler(BaseHTTPRequestHandler):
    server: Geocoder

    def do_GET(self) -> None:
        address, server = parse_qs(urlsplit(self.path).query)["address"][0], self.server
        with server.lock:
            server.calls.append(address)
            server.times.append(time.monotonic())
            server.now += 1
            server.most = max(server.most, server.now)
            number = server.counts[address]
        try:
            self._answer(address, number)
        finally:
            with server.lock:
                server.now -= 1

    def _answer(self, address: str, number: int) -> None:
        if self.server.is_down or address.startswith("fails") or (address.startswith("flaky") and number < 3):
            self.send_error(503)
        elif address.startswith("hangs up"):
            self.connection.close()
        else:
            time.sleep(5 if address.startswith("never") else 0.1 if address.startswith("slow") else 0)
            found: object = CITIES.get(address) and {"city": CITIES[address], "lat": 1.5}
            if address.startswith("nonsense"):
                found = "somewhere" if address.endswith("as text") else {"city": "?", "lat": "north"}
            elif address.startswith(("flaky", "slow", "n")):
                found = {"city": address.title()}
            elif address == "counted":
                found = {"city": str(number)}
            body = json.dumps(found).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            with suppress(BrokenPipeError, ConnectionResetError):  # nobody waits any more
                self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def geocoder() -> Iterator[Geocoder]:
    with Geocoder() as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def geocode_at(url: str, **options: object) -> Service:
    """The service that asks it, by connections that stay open from call to call."""
    client = httpx.AsyncClient(timeout=None)

    async def geocode(address: str) -> object:
        found = await client.get(url, params={"address": address})
        return found.raise_for_status().json()

    declared: dict[str, object] = {"returns": "city STRING, lat DOUBLE", "timeout": "1 second", "rate": 1000}
    return Service(geocode, **declared | options)  # type: ignore[arg-type]
