"""HTTP calls that say who we are, and what keeps them from being encrypted."""

import socket
import ssl
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

import requests

from .options import Cluster

UNKNOWN_SIGNERS = (2, 7, 18, 19, 20, 21, 30)
"""OpenSSL's error codes for certificates that no trusted CA has signed."""
HTTPS = 443
REFUSED_WITHIN = 2.0
"""Seconds to wait for what a server has against our certificate."""
MAY_PASS = (ssl.SSLEOFError, ssl.SSLZeroReturnError, ssl.SSLSyscallError)
"""Errors of a connection that ended, as when a broker stops."""


class Session(requests.Session):
    """Sends the token of that moment, and never what a .netrc has for the host."""

    def __init__(self, token: Callable[[], str | None] = lambda: None) -> None:
        super().__init__()

        def sign(request: requests.PreparedRequest) -> requests.PreparedRequest:
            if given := token():
                request.headers["Authorization"] = f"Bearer {given}"
            return request

        self.auth = sign

    def request(self, method: str | bytes, url: str | bytes, *args: Any, **options: Any) -> requests.Response:
        self.trust_env = "//127.0.0.1:" not in str(url)  # a proxy can't reach this machine's loopback
        return super().request(method, url, *args, **options)

    def rebuild_auth(self, prepared_request: requests.PreparedRequest, response: requests.Response) -> None:
        """Send the token to the broker that serves a topic too: all others redirect to it."""
        if response.url.startswith("https:") and not str(prepared_request.url).startswith("https:"):
            prepared_request.headers.pop("Authorization", None)


def tls_context(cluster: Cluster) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=cluster.tls_trust_certs)
    context.check_hostname = cluster.tls_validate_hostname
    if cluster.tls_certificate:
        context.load_cert_chain(cluster.tls_certificate, cluster.tls_key, password="")  # which asks nobody for one
    return context


def what_a_server_refuses(url: str, cluster: Cluster) -> str | None:
    """What TLS has against us at a host, as `tls_problem` says it.

    A server says only after the handshake that it wants a certificate, or another one. Calls often end before they have
    read that.
    """
    host = urlsplit(url)
    try:
        with (
            socket.create_connection((host.hostname, host.port or HTTPS), REFUSED_WITHIN) as connection,
            tls_context(cluster).wrap_socket(connection, server_hostname=host.hostname) as encrypted,
        ):
            encrypted.recv(1)
    except OSError as error:
        return tls_problem(error, cluster)
    return None


def tls_problem(error: BaseException | None, cluster: Cluster) -> str | None:
    """Why TLS caused an error, if another try would end in the same way; None if not."""
    while error is not None and not isinstance(error, ssl.SSLError):
        error = error.__cause__ or error.__context__
    match error:
        case ssl.SSLCertVerificationError(verify_code=code) if code in UNKNOWN_SIGNERS and cluster.tls_trust_certs:
            return f"its certificate is not signed by a CA of option tlsTrustCerts, {cluster.tls_trust_certs}"
        case ssl.SSLCertVerificationError(verify_code=code) if code in UNKNOWN_SIGNERS:
            return "its certificate is not signed by a CA that this machine trusts: set option tlsTrustCerts"
        case ssl.SSLCertVerificationError(verify_message=message):
            return f"its certificate is refused: {message}"
        case ssl.SSLError(reason="WRONG_VERSION_NUMBER"):
            return "the server there does not use TLS"
        case ssl.SSLError(reason=str(reason)) if "ALERT" in reason and ("CERTIFICATE" in reason or "CA" in reason):
            told = reason.partition("ALERT_")[2].lower().replace("_", " ")
            if cluster.tls_certificate:
                return f"the server refuses the certificate of option tlsCertificate, {cluster.tls_certificate}: {told}"
            return f"the server wants a certificate: set option tlsCertificate and option tlsKey: {told}"
        case ssl.SSLError(reason=str(reason)) if not isinstance(error, MAY_PASS):
            return f"TLS fails: {reason.lower().replace('_', ' ')}"
    return None
