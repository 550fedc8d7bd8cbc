"""Connects to a Pulsar cluster: by its binary protocol for messages, and by its admin API for all else."""

import socket
import ssl
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from urllib.parse import urlsplit

import pulsar
import requests

from pulsar_lakehouse.bronze.pulsar import reading
from pulsar_lakehouse.bronze.pulsar.admin import Admin, tls_error
from pulsar_lakehouse.bronze.pulsar.options import CertificateError, Cluster, NoAnswerError
from pulsar_lakehouse.errors import BrokerError, RefusedError, UnreachableError
from pulsar_lakehouse.settings import Settings

TIMEOUT = (5, 30)
"""Timeouts of an admin call, in seconds: to connect, and to wait for the answer."""

NO_SUCH_TOPIC = "no such topic: `lakehouse topics create` makes the declared ones"
ENCRYPTED, ENCRYPTED_PORT = "pulsar+ssl://", 6651

UNKNOWN_SIGNERS = (2, 7, 18, 19, 20, 21, 30)
"""OpenSSL's error codes for certificates that no trusted CA has signed."""


@dataclass(frozen=True, kw_only=True)
class Endpoint:
    service_url: str
    admin_url: str

    def cluster(self, settings: Settings) -> Cluster:
        """How to reach it with the token and certificates of the settings."""
        given = settings.pulsar
        return Cluster(
            service_url=self.service_url,
            admin_url=self.admin_url,
            token=given.token.get_secret_value() if given.token else None,
            tls_trust_certs=str(given.tls_trust_certs) if given.tls_trust_certs else None,
            tls_validate_hostname=given.tls_validate_hostname,
        )


def connect(endpoint: Endpoint, settings: Settings) -> pulsar.Client:
    """A client, which the caller must close. It logs to `<home>/pulsar-client.log`."""
    settings.home.mkdir(parents=True, exist_ok=True)
    return reading.connect(endpoint.cluster(settings), str(settings.home / "pulsar-client.log"))


@contextmanager
def connected(endpoint: Endpoint, settings: Settings) -> Iterator[pulsar.Client]:
    """A client for the block, which raises BrokerError for errors of the client."""
    with closing(connect(endpoint, settings)) as client:
        try:
            yield client
        except pulsar.PulsarException as error:
            raise BrokerError(f"{endpoint.service_url}: {error}") from error


def call_admin(
    method: str, path: str, endpoint: Endpoint, settings: Settings, *, body: object = None, accept: tuple[int, ...] = ()
) -> requests.Response:
    """Call `path`, below `/admin/v2/`. Responses with an HTTP status in `accept` are returned like a success.

    Raises UnreachableError if no broker answers, RefusedError if the token or the certificate is rejected, and
    BrokerError for any other HTTP error.
    """
    try:
        with closing(Admin(endpoint.cluster(settings), timeout=TIMEOUT)) as admin:
            response = admin.answer(method, path, body)
    except CertificateError as error:
        raise RefusedError(f"{error.url}: {_tls_problem(error, settings)}") from error
    except NoAnswerError as error:
        if problem := _tls_problem(error, settings):
            raise RefusedError(f"{endpoint.admin_url}: {problem}") from error
        raise UnreachableError(str(error)) from error
    if response.status_code in (401, 403):
        why = "the token was refused" if settings.pulsar.token else "no token was sent: set LAKEHOUSE_PULSAR__TOKEN"
        raise RefusedError(f"{method} {response.url}: {why}: {_reason(response)}")
    if not response.ok and response.status_code not in accept:
        raise BrokerError(f"{method} {response.url}: the broker answered {response.status_code}: {_reason(response)}")
    return response


def check_certificate(endpoint: Endpoint, settings: Settings) -> None:
    """Raises RefusedError if the certificate of the service URL is not trusted.

    The client itself would try for half a minute, and then say only that it could not connect.
    """
    if not endpoint.service_url.startswith(ENCRYPTED):
        return
    context = ssl.create_default_context(cafile=settings.pulsar.tls_trust_certs)
    context.check_hostname = settings.pulsar.tls_validate_hostname
    for address in endpoint.service_url.removeprefix(ENCRYPTED).split(","):
        url = urlsplit(f"//{address}")
        try:
            with socket.create_connection((url.hostname, url.port or ENCRYPTED_PORT), TIMEOUT[0]) as connection:
                context.wrap_socket(connection, server_hostname=url.hostname).close()
        except OSError as error:  # may be transient, unless the certificate caused it
            if problem := _tls_problem(error, settings):
                raise RefusedError(f"{endpoint.service_url}: {problem}") from error


def _tls_problem(error: Exception, settings: Settings) -> str | None:
    """Why the server's certificate or TLS caused an error; None if it did not."""
    trusted = settings.pulsar.tls_trust_certs
    match tls_error(error):
        case ssl.SSLCertVerificationError(verify_code=code) if code in UNKNOWN_SIGNERS and trusted:
            return f"its certificate is not signed by a CA of pulsar.tls_trust_certs, {trusted}"
        case ssl.SSLCertVerificationError(verify_code=code) if code in UNKNOWN_SIGNERS:
            return "its certificate is not signed by a CA that this machine trusts: set pulsar.tls_trust_certs"
        case ssl.SSLCertVerificationError(verify_message=message):
            return f"its certificate is refused: {message}"
        case ssl.SSLError(reason="WRONG_VERSION_NUMBER"):
            return "the server there does not use TLS"
    return None


def _reason(response: requests.Response) -> str:
    """The broker's reason for an error, in one line."""
    try:
        text = str(response.json()["reason"])
    except (ValueError, KeyError, TypeError):
        text = response.reason
    return text.strip().partition("\n")[0]
