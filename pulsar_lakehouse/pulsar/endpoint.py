"""Connects to a Pulsar cluster: by its binary protocol for messages, and by its admin API for all else."""

import socket
import ssl
from dataclasses import dataclass
from urllib.parse import urlsplit

import pulsar
import requests

from pulsar_lakehouse.errors import BrokerError, RefusedError, UnreachableError
from pulsar_lakehouse.settings import Settings

TIMEOUT = (5, 30)
"""Timeouts of an admin call, in seconds: to connect, and to wait for the answer."""

ENCRYPTED, ENCRYPTED_PORT = "pulsar+ssl://", 6651

UNKNOWN_SIGNERS = (2, 7, 18, 19, 20, 21, 30)
"""OpenSSL's error codes for certificates that no trusted CA has signed."""

_ANSWERED: dict[str, str] = {}
"""By admin URL of a cluster: the URL of the broker that answered last, which is asked first."""


@dataclass(frozen=True, kw_only=True)
class Endpoint:
    service_url: str
    admin_url: str

    @property
    def admin_urls(self) -> list[str]:
        """The URL of each host: `http://one:8080,other:8080` names two brokers of a cluster."""
        url = urlsplit(self.admin_url)
        return [f"{url.scheme}://{host}{url.path.rstrip('/')}" for host in url.netloc.split(",")]


class _Session(requests.Session):
    """Sends the token to the broker that serves a topic too: all others redirect to it."""

    def should_strip_auth(self, old_url: str, new_url: str) -> bool:
        return old_url.startswith("https:") and not new_url.startswith("https:")


def connect(endpoint: Endpoint, settings: Settings) -> pulsar.Client:
    """A client with the token and certificates of the settings. The caller must close it.

    It logs to `<home>/pulsar-client.log`.
    """
    settings.home.mkdir(parents=True, exist_ok=True)
    token, certificates = settings.pulsar.token, settings.pulsar.tls_trust_certs
    return pulsar.Client(
        endpoint.service_url,
        authentication=pulsar.AuthenticationToken(token.get_secret_value()) if token else None,
        tls_trust_certs_file_path=str(certificates) if certificates else None,
        tls_validate_hostname=settings.pulsar.tls_validate_hostname,
        logger=pulsar.FileLogger(pulsar.LoggerLevel.Warn, str(settings.home / "pulsar-client.log")),
    )


def call_admin(
    method: str, path: str, endpoint: Endpoint, settings: Settings, *, body: object = None, accept: tuple[int, ...] = ()
) -> requests.Response:
    """Call `path`, below `/admin/v2/`. Responses with an HTTP status in `accept` are returned like a success.

    Raises UnreachableError if no broker answers, RefusedError if the token or the certificate is rejected, and
    BrokerError for any other HTTP error.
    """
    token = settings.pulsar.token
    response = _first_answer(method, path, endpoint, settings, body)
    if response.status_code in (401, 403):
        why = "the token was refused" if token else "no token was sent: set LAKEHOUSE_PULSAR__TOKEN"
        raise RefusedError(f"{method} {response.url}: {why}: {_reason(response)}")
    if not response.ok and response.status_code not in accept:
        raise BrokerError(f"{method} {response.url}: the broker answered {response.status_code}: {_reason(response)}")
    return response


def _first_answer(method: str, path: str, endpoint: Endpoint, settings: Settings, body: object) -> requests.Response:
    """Ask one broker after the other until one answers."""
    token, certificates = settings.pulsar.token, settings.pulsar.tls_trust_certs
    headers = {"Authorization": f"Bearer {token.get_secret_value()}"} if token else {}
    verify = str(certificates) if certificates else True
    last = _ANSWERED.get(endpoint.admin_url)
    for base in sorted(endpoint.admin_urls, key=lambda url: url != last):
        url = f"{base}/admin/v2/{path}"
        try:
            with _Session() as session:
                session.trust_env = "//127.0.0.1:" not in url  # no proxy for this machine
                response = session.request(method, url, json=body, headers=headers, verify=verify, timeout=TIMEOUT)
            _ANSWERED[endpoint.admin_url] = base
            return response
        except requests.RequestException as error:
            if problem := _certificate_problem(error, settings):
                raise RefusedError(f"{base}: {problem}") from error
            failure = error
    raise UnreachableError(f"{endpoint.admin_url}: no answer from the broker: {type(failure).__name__}") from failure


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
            if problem := _certificate_problem(error, settings):
                raise RefusedError(f"{endpoint.service_url}: {problem}") from error


def _certificate_problem(error: BaseException | None, settings: Settings) -> str | None:
    """Why the server's certificate or TLS caused an error; None if it did not."""
    while error is not None and not isinstance(error, ssl.SSLError):
        error = error.__cause__ or error.__context__
    trusted = settings.pulsar.tls_trust_certs
    match error:
        case ssl.SSLCertVerificationError(verify_code=code) if code in UNKNOWN_SIGNERS and trusted:
            return f"its certificate is not signed by a CA of pulsar.tls_trust_certs, {trusted}"
        case ssl.SSLCertVerificationError(verify_code=code) if code in UNKNOWN_SIGNERS:
            return "its certificate is not signed by a CA that this machine trusts: set pulsar.tls_trust_certs"
        case ssl.SSLCertVerificationError():
            return f"its certificate is refused: {error.verify_message}"
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
