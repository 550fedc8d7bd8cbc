"""Who we are to the brokers: a token, which may be renewed while messages are read, or a certificate of our own."""

import base64
import json
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime

from .files import read
from .issuer import granted_token
from .options import Cluster, PulsarSourceError, json_web_token


def token_of(cluster: Cluster) -> str | None:
    """The token to send now; None if there is none.

    Raises PulsarSourceError if the file has no token or the issuer refuses, and NoAnswerError if the issuer does not
    answer.
    """
    if cluster.token_file:
        return read("tokenFile", cluster.token_file, lambda text: json_web_token(text.strip()))
    return granted_token(cluster) if cluster.oauth2_issuer_url else cluster.token


def supplier(cluster: Cluster) -> Callable[[], str]:
    """What Pulsar's client calls for a token: when it connects, and when the broker sees that the last one expired.

    It does so in a thread of its own, where an error would abort the process. So the last token is sent instead.
    Raises the errors of `token_of` at once.
    """
    last = token_of(cluster) or ""

    def supply() -> str:
        nonlocal last
        with suppress(PulsarSourceError):
            last = token_of(cluster) or ""
        return last

    return supply


def refused(cluster: Cluster) -> str | None:
    """What a broker that refuses us was sent, and the option that it is from; None if it was nothing."""
    if cluster.tls_certificate and not cluster.has_token:
        return f"the certificate of option tlsCertificate, {cluster.tls_certificate},"
    if not cluster.has_token:
        return None
    by_option = {"tokenFile": cluster.token_file, "oauth2IssuerUrl": cluster.oauth2_issuer_url}
    return "the token" + "".join(f" of option {name}" for name, value in by_option.items() if value) + _expiry(cluster)


def _expiry(cluster: Cluster) -> str:
    """When the token expired, if it did."""
    with suppress(PulsarSourceError, ValueError, TypeError, LookupError, OverflowError):
        claims = str(token_of(cluster)).split(".")[1]
        expiry = json.loads(base64.urlsafe_b64decode(f"{claims}=="))["exp"]
        if expiry <= time.time():
            return f", which expired at {datetime.fromtimestamp(expiry, UTC):%Y-%m-%d %H:%M:%S} UTC,"
    return ""
