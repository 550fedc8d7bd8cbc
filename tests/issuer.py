"""An OAuth2 issuer of tokens that the tests' brokers trust."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from urllib.parse import parse_qsl

from tests.tokens import token

CLIENT = {"client_id": "owner", "client_secret": "s3cret"}


@dataclass
class Issuer:
    url: str = ""
    lifetime: float = 3600
    """Seconds until a token expires."""
    status: int = 200
    """What it answers with to a valid client."""
    asked: list[dict[str, str]] = field(default_factory=list)
    """The form of each call, but for the secret."""

    def answer(self, form: dict[str, str]) -> tuple[int, dict[str, object]]:
        if form.pop("client_secret") != CLIENT["client_secret"]:
            return 401, {"error": "invalid_client", "error_description": "Invalid\nclient secret"}
        self.asked.append(form)
        granted = token(form["client_id"], seconds=self.lifetime)
        return self.status, {"access_token": granted, "expires_in": self.lifetime, "token_type": "Bearer"}


@contextmanager
def running_issuer(issuer: Issuer | None = None) -> Iterator[Issuer]:
    made = issuer or Issuer()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            known = self.path == "/realms/tests/.well-known/openid-configuration"
            self.tell(200 if known else 404, {"token_endpoint": f"{made.url}/token"} if known else {})

        def do_POST(self) -> None:
            form = self.rfile.read(int(self.headers["Content-Length"])).decode()
            self.tell(*made.answer(dict(parse_qsl(form))))

        def tell(self, status: int, answer: dict[str, object]) -> None:
            content = json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        made.url = f"http://127.0.0.1:{server.server_port}/realms/tests"
        yield made
        server.shutdown()


def key_file(folder: Path, **client: str) -> Path:
    """The file with a client's credentials, as Pulsar's own clients take it."""
    path = folder / "key.json"
    path.write_text(json.dumps({"type": "client_credentials", **CLIENT, **client}))
    return path
