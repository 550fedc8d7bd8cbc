"""Serves the page to one user of this machine, without Airflow."""

import hmac
import secrets
import threading
from http.cookies import CookieError, SimpleCookie
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, unquote, urlsplit

from pulsar_lakehouse.errors import LakehouseError
from pulsar_lakehouse.local.processes import HOST, choose_port
from pulsar_lakehouse.page.page import Page
from pulsar_lakehouse.page.requests import MOST_BYTES, Answer, Request, User
from pulsar_lakehouse.settings import Settings


class PageServer(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, settings: Settings, port: int, user: str) -> None:
        super().__init__((HOST, port), _Handler)
        self.page, self.user, self.token = Page(settings), User(user, may_act=True), secrets.token_urlsafe(24)
        self.cookie = f"lakehouse_{self.server_port}"  # browsers don't tell the ports of a host apart

    @property
    def url(self) -> str:
        """The address, with the token that lets a browser in: other users of the machine can reach the port, too."""
        return f"http://{HOST}:{self.server_port}/?token={self.token}"

    def handle_error(self, *_: object) -> None:
        """A browser that goes away in the middle of an answer is nothing to report."""


def serve_page(settings: Settings, port: int, user: str) -> PageServer:
    """Serve the page in a thread, on this machine only, to whoever has its URL; 0 takes a free port.

    Raises LakehouseError if the port is taken.
    """
    try:
        server = PageServer(settings, choose_port("--port", port, 0), user)
    except OSError as error:
        raise LakehouseError(str(error)) from error
    threading.Thread(target=server.serve_forever, name="page", daemon=True).start()
    return server


class _Handler(BaseHTTPRequestHandler):
    server: PageServer
    protocol_version = "HTTP/1.1"
    timeout = 60
    """Seconds after which a connection is closed that says nothing."""

    def do_GET(self) -> None:
        self._answer("")

    def do_POST(self) -> None:
        length = self.headers.get("Content-Length", "")
        if not length.isdecimal() or int(length) > MOST_BYTES:
            self.close_connection = True
            self._send(Answer(status=413, body=b"too long", kind="text/plain"))
            return
        self._answer(self.rfile.read(int(length)).decode(errors="replace"))

    def _answer(self, body: str) -> None:
        asked = urlsplit(self.path)
        given = parse_qs(asked.query).get("token", [""])[0]
        if given and self._is_token(given):
            cookie = f"{self.server.cookie}={self.server.token}; HttpOnly; SameSite=Strict; Path=/"
            self._send(Answer(status=303, location="/"), cookie)
        elif not self._is_token(self._cookie()):
            told = b"Open the whole URL that `lakehouse ui` printed: its token is missing or old.\n"
            self._send(Answer(status=401, body=told, kind="text/plain; charset=utf-8"))
        else:
            headers = {name.lower(): value for name, value in self.headers.items()}
            path, method, user = unquote(asked.path).removeprefix("/"), self.command, self.server.user
            request = Request(path=path, method=method, query=asked.query, body=body, headers=headers, user=user)
            self._send(self.server.page.answer(request))

    def _is_token(self, text: str) -> bool:
        return hmac.compare_digest(text.encode(), self.server.token.encode())

    def _cookie(self) -> str:
        try:
            found = SimpleCookie(self.headers.get("Cookie", "")).get(self.server.cookie)
        except CookieError:
            return ""
        return found.value if found else ""

    def _send(self, answer: Answer, cookie: str = "") -> None:
        self.send_response(answer.status)
        for name, value in {**answer.headers, "Content-Length": str(len(answer.body))}.items():
            self.send_header(name, value)
        if cookie:
            self.send_header("Set-Cookie", cookie)
        self.end_headers()
        self.wfile.write(answer.body)

    def version_string(self) -> str:
        return "lakehouse"

    def log_message(self, format: str, *args: object) -> None:
        pass
