"""A cluster as its admin API shows it: one broker is dead, and another redirects to a third, which wants a token."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread


@contextmanager
def redirecting_brokers(answer: object, *, token: str) -> Iterator[str]:
    """The admin URL of such a cluster, which names the dead broker first. The third one answers with JSON."""

    class Serving(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            content = json.dumps(answer).encode()
            self.send_response(200 if self.headers["Authorization"] == f"Bearer {token}" else 401)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: object) -> None:
            pass

    class Redirecting(Serving):
        def do_GET(self) -> None:
            self.send_response(307)
            self.send_header("Location", f"http://127.0.0.1:{serving.server_port}{self.path}")
            self.end_headers()

    with (
        ThreadingHTTPServer(("127.0.0.1", 0), Serving) as serving,
        ThreadingHTTPServer(("127.0.0.1", 0), Redirecting) as redirecting,
    ):
        for server in (serving, redirecting):
            Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:1,127.0.0.1:{redirecting.server_port}"
        for server in (serving, redirecting):
            server.shutdown()
