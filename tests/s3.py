"""A server of the S3 API, S3Proxy, whose objects are files of a folder. It can die and come back."""

import http.client
import random
import socket
import subprocess
import time
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from pulsar_lakehouse.downloads.artifacts import downloaded
from pulsar_lakehouse.jvm.java import java_home
from pulsar_lakehouse.local.processes import free_port
from pulsar_lakehouse.settings import S3, Settings

BUCKET = "lake"
CREDENTIALS = {"AWS_ACCESS_KEY_ID": "tests", "AWS_SECRET_ACCESS_KEY": "kept-for-tests"}
"""The environment variables of those who use the server."""


@dataclass
class Server:
    folder: Path
    cache: Path
    port: int = field(default_factory=free_port)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        (self.folder / "objects" / BUCKET).mkdir(parents=True, exist_ok=True)
        properties = {
            "s3proxy.endpoint": self.url,
            "s3proxy.authorization": "aws-v2-or-v4",
            "s3proxy.identity": CREDENTIALS["AWS_ACCESS_KEY_ID"],
            "s3proxy.credential": CREDENTIALS["AWS_SECRET_ACCESS_KEY"],
            "jclouds.provider": "filesystem-nio2",
            "jclouds.filesystem.basedir": str(self.folder / "objects"),
        }
        file = self.folder / "s3proxy.conf"
        file.write_text("".join(f"{name}={value}\n" for name, value in properties.items()))
        command: list[str | Path] = [java_home() / "bin" / "java", "-Xmx256m", "-XX:TieredStopAtLevel=1"]
        command += ["-jar", *downloaded("s3proxy", self.cache), "--properties", file]
        with (self.folder / "s3proxy.log").open("ab") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log)
        while not answers(self.port):
            assert self._process.poll() is None, "the server has ended"
            time.sleep(0.1)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()


def answers(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def in_store(settings: Settings, url: str, root: str) -> Settings:
    """The settings, with tables and checkpoints in the bucket of the server with this URL."""
    s3 = S3(endpoint=url, region="us-east-1", path_style=True)
    return settings.model_copy(update={"warehouse": f"s3a://{BUCKET}/{root}", "s3": s3})


class Unreliable(ThreadingHTTPServer):
    """Passes requests on to a server, slowly. Of every ten, some fail: before they reach it, or after."""

    daemon_threads = True

    def __init__(self, server: Server, draw: random.Random, *, delay: float = 0.02) -> None:
        super().__init__(("127.0.0.1", 0), _Passing)
        self.backend, self.draw, self.delay = server, draw, delay
        self.failed = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class _Passing(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Unreliable

    def pass_on(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        time.sleep(self.server.delay)
        fault = self.server.draw.random()
        if fault < 0.05:
            self._fail(503, "SlowDown")
            return
        backend = http.client.HTTPConnection("127.0.0.1", self.server.backend.port)
        backend.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
        for name, value in self.headers.items():
            if name.lower() != "expect":
                backend.putheader(name, value)
        backend.endheaders(body)
        answer = backend.getresponse()
        content = answer.read()
        if fault < 0.10:  # the request was done, but its answer is lost
            self._fail(500, "InternalError")
            return
        self.send_response(answer.status)
        for name, value in answer.getheaders():
            if name.lower() not in ("transfer-encoding", "connection"):
                self.send_header(name, value)
        if "Content-Length" not in answer.headers and answer.status not in (204, 304):
            self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = pass_on  # noqa: N815

    def _fail(self, status: int, code: str) -> None:
        self.server.failed += 1
        content = f"<Error><Code>{code}</Code><Message>drawn</Message></Error>".encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        pass
