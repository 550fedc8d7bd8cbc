"""Tokens of an OAuth2 issuer, by the grant of client credentials (RFC 6749, 4.4)."""

import json
import time
from collections.abc import Mapping
from contextlib import suppress
from threading import Lock
from typing import Any, NamedTuple

import requests

from .files import read
from .options import Cluster, NoAnswerError, PulsarSourceError
from .sessions import Session, tls_problem

TIMEOUT = (5, 10)
"""Timeouts of a call, in seconds: to connect, and to wait for the answer."""
DISCOVERY = "/.well-known/openid-configuration"
LIFETIME = 60.0
"""Seconds for which a token is used if its issuer does not say how long it is valid."""
RENEWED_AT = 0.5
"""The part of a token's life after which another one is asked for."""


class _Grant(NamedTuple):
    token: str
    at: float
    """When it was asked for, in epoch seconds."""
    lifetime: float
    """Seconds."""

    def is_within(self, part: float) -> bool:
        return time.time() < self.at + part * self.lifetime


_GRANTS: dict[tuple[str | None, ...], _Grant] = {}
_LOCK = Lock()


def granted_token(cluster: Cluster) -> str:
    """The token to send now, which is asked for only if the last one gets old.

    Raises PulsarSourceError if the issuer refuses, and NoAnswerError if it does not answer and the last token expired.
    """
    asked = (cluster.oauth2_issuer_url, cluster.oauth2_key_file, cluster.oauth2_audience, cluster.oauth2_scope)
    with _LOCK:
        last = _GRANTS.get(asked)
        if last is None or not last.is_within(RENEWED_AT):
            try:
                last = _GRANTS[asked] = _ask(cluster)
            except NoAnswerError:
                if last is None or not last.is_within(1):
                    raise
        return last.token


def _ask(cluster: Cluster) -> _Grant:
    issuer = str(cluster.oauth2_issuer_url).rstrip("/")
    client = read("oauth2KeyFile", str(cluster.oauth2_key_file), _client)
    form = {"grant_type": "client_credentials", "audience": cluster.oauth2_audience, "scope": cluster.oauth2_scope}
    at = time.time()
    with Session() as session:
        known = _answer(session, issuer, "GET", issuer + DISCOVERY)
        answer = _answer(session, issuer, "POST", known.get("token_endpoint", ""), form | client)
    try:
        return _Grant(answer["access_token"], at, float(answer.get("expires_in", LIFETIME)))
    except (KeyError, TypeError, ValueError):
        why = ": ".join(str(answer[name]) for name in ("error", "error_description") if answer.get(name))
        refused = f"{issuer} refuses the client {client['client_id']}: {' '.join(why.split()) or 'no access_token'}"
        raise PulsarSourceError(f"option oauth2KeyFile: {refused}") from None


def _answer(
    session: Session, issuer: str, method: str, url: str, form: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """The JSON object that the issuer answers with, be it an error."""
    try:
        answer = session.request(method, url, data=form, timeout=TIMEOUT)
    except requests.RequestException as error:
        if problem := tls_problem(error, Cluster(service_url="", admin_url="")):
            raise PulsarSourceError(f"option oauth2IssuerUrl: {issuer}: {problem}") from error
        raise NoAnswerError(f"option oauth2IssuerUrl: {issuer}: no answer: {type(error).__name__}") from error
    if answer.status_code >= 500 or answer.status_code == 429:
        raise NoAnswerError(f"option oauth2IssuerUrl: {issuer}: it answered {answer.status_code} {answer.reason}")
    with suppress(ValueError):
        if isinstance(found := answer.json(), dict) and (answer.ok or form):
            return found
    raise PulsarSourceError(f"option oauth2IssuerUrl: {issuer}: no issuer of tokens: {answer.status_code} for {url}")


def _client(text: str) -> dict[str, str]:
    with suppress(ValueError):
        found = json.loads(text)
        if isinstance(found, dict) and all(isinstance(found.get(name), str) for name in ("client_id", "client_secret")):
            return {name: found[name] for name in ("client_id", "client_secret")}
    raise ValueError("must be a JSON file with client_id and client_secret")
