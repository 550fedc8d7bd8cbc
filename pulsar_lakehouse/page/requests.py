"""What a browser asks for, and the answer: whatever server is in between."""

import mimetypes
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from urllib.parse import parse_qsl, urlsplit

MOST_BYTES = 100_000
"""A request with a longer body is refused."""
OWN = "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; img-src 'self' data:"
"""The policy of what the page may load and run: its own style and script, and nothing that is within its HTML."""
OF_REPORT = "default-src 'self' 'unsafe-inline' data:; connect-src 'none'"
"""That of the quality report, which has scripts within its HTML."""
LIMITS = "base-uri 'none'; form-action 'self'; frame-ancestors 'self'"


@dataclass(frozen=True)
class User:
    name: str
    may_act: bool
    """Whether they may see rows, and act on them. Others see numbers."""


@dataclass(frozen=True, kw_only=True)
class Request:
    path: str
    """Within the page, such as `tables`; empty for the first view."""
    user: User
    method: str = "GET"
    query: str = ""
    body: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)
    """By names in lower case."""

    @cached_property
    def values(self) -> dict[str, str]:
        """What the query and the form give."""
        return {name: value.replace("\r\n", "\n") for name, value in parse_qsl(self.query) + parse_qsl(self.body)}

    @property
    def is_from_page(self) -> bool:
        """Whether a page of the same server sent this, and not one of another that makes use of a login here."""
        if site := self.headers.get("sec-fetch-site"):
            return site == "same-origin"
        origin = self.headers.get("origin", "")  # without TLS, browsers don't tell the site
        return bool(origin) and urlsplit(origin).netloc == self.headers.get("host")


@dataclass(frozen=True, kw_only=True)
class Answer:
    body: bytes = b""
    status: int = 200
    kind: str = "text/html; charset=utf-8"
    policy: str = OWN
    location: str = ""
    kept_seconds: int = 0
    """For how long browsers keep it."""

    @property
    def headers(self) -> dict[str, str]:
        given = {
            "Content-Type": self.kind,
            "Content-Security-Policy": f"{self.policy}; {LIMITS}",
            "X-Content-Type-Options": "nosniff",
            "Referrer-Policy": "same-origin",
            "Cache-Control": f"private, max-age={self.kept_seconds}" if self.kept_seconds else "no-store",
        }
        return {**given, "Location": self.location} if self.location else given


def file_in(folder: Path, path: str) -> Path | None:
    """The file with this path in a folder, or the first page of a folder in it; None if it is not in there."""
    try:
        found = (folder / path).resolve()
        found = found / "index.html" if found.is_dir() else found
        return found if found.is_file() and found.is_relative_to(folder.resolve()) else None
    except (OSError, ValueError):  # for a name that is too long, or that no file can have
        return None


def sent(file: Path, policy: str = OWN, kept_seconds: int = 0) -> Answer:
    kind = mimetypes.guess_type(file.name)[0] or "application/octet-stream"
    named = f"{kind}; charset=utf-8" if kind.startswith("text/") else kind
    return Answer(body=file.read_bytes(), kind=named, policy=policy, kept_seconds=kept_seconds)
