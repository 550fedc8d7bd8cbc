"""Connects to a Pulsar cluster: by its binary protocol for messages, and by its admin API for all else."""

import socket
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote, urlsplit

import pulsar
import requests

from pulsar_lakehouse.bronze.pulsar import reading
from pulsar_lakehouse.bronze.pulsar.admin import Admin
from pulsar_lakehouse.bronze.pulsar.credentials import refused
from pulsar_lakehouse.bronze.pulsar.options import Cluster, NoAnswerError, PulsarSourceError
from pulsar_lakehouse.bronze.pulsar.sessions import tls_context, tls_problem
from pulsar_lakehouse.errors import BrokerError, RefusedError, UnreachableError, naming_settings
from pulsar_lakehouse.settings import Settings

TIMEOUT = (5, 30)
"""Timeouts of an admin call, in seconds: to connect, and to wait for the answer."""

NO_SUCH_TOPIC = "no such topic: `lakehouse topics create` makes the declared ones"
ENCRYPTED, ENCRYPTED_PORT = "pulsar+ssl://", 6651
NOT_SENT = "no token was sent: set pulsar.token_file, pulsar.oauth2_issuer_url or LAKEHOUSE_PULSAR__TOKEN"


@dataclass(frozen=True, kw_only=True)
class Endpoint:
    service_url: str
    admin_url: str

    def cluster(self, settings: Settings) -> Cluster:
        """How to reach it with the credentials of the settings."""
        given = settings.pulsar

        def path(file: Path | None) -> str | None:
            return str(file) if file else None

        return Cluster(
            service_url=self.service_url,
            admin_url=self.admin_url,
            listener_name=given.listener_name,
            token=given.token.get_secret_value() if given.token else None,
            token_file=path(given.token_file),
            oauth2_issuer_url=given.oauth2_issuer_url,
            oauth2_key_file=path(given.oauth2_key_file),
            oauth2_audience=given.oauth2_audience,
            oauth2_scope=given.oauth2_scope,
            tls_certificate=path(given.tls_certificate),
            tls_key=path(given.tls_key),
            tls_trust_certs=path(given.tls_trust_certs),
            tls_validate_hostname=given.tls_validate_hostname,
        )


def connect(endpoint: Endpoint, settings: Settings) -> pulsar.Client:
    """A client, which the caller must close. It logs to `<home>/pulsar-client.log`.

    Raises RefusedError if there is no token to send, and UnreachableError if its issuer does not answer.
    """
    settings.home.mkdir(parents=True, exist_ok=True)
    with _told():
        return reading.connect(endpoint.cluster(settings), str(settings.home / "pulsar-client.log"))


@contextmanager
def connected(endpoint: Endpoint, settings: Settings) -> Iterator[pulsar.Client]:
    """A client for the block, which raises BrokerError for errors of the client."""
    client = connect(endpoint, settings)
    try:
        yield client
    except pulsar.PulsarException as error:
        raise BrokerError(f"{endpoint.service_url}: {error}") from error
    finally:
        with suppress(pulsar.PulsarException):  # of a lost connection, which would hide what the block raises
            client.close()


def call_admin(
    method: str, path: str, endpoint: Endpoint, settings: Settings, *, body: object = None, accept: tuple[int, ...] = ()
) -> requests.Response:
    """Call `path`, below `/admin/v2/`. Responses with an HTTP status in `accept` are returned like a success.

    Raises UnreachableError if no broker answers, RefusedError if the token or a certificate is rejected, and
    BrokerError for any other HTTP error.
    """
    cluster = endpoint.cluster(settings)
    with _told(), closing(Admin(cluster, timeout=TIMEOUT)) as admin:
        response = admin.answer(method, path, body)
    if response.status_code in (401, 403):
        sent = refused(cluster)
        why = naming_settings(f"{sent} was refused") if sent else NOT_SENT
        raise RefusedError(f"{method} {response.url}: {why}: {_reason(response)}")
    if not response.ok and response.status_code not in accept:
        raise BrokerError(f"{method} {response.url}: the broker answered {response.status_code}: {_reason(response)}")
    return response


def admin_path(topic: str, kind: str = "persistent") -> str:
    """The path in the admin API of a topic, or of its `schemas`, by its full name, which can have any characters."""
    name = topic.removeprefix("persistent://")
    if kind == "schemas":
        name = name.replace("%", "%25")  # Pulsar 4.0.8 decodes it twice there
    return f"{kind}/{quote(name)}"


@contextmanager
def _told() -> Iterator[None]:
    """Raises errors of the source for those of this package, with the names of settings."""
    try:
        yield
    except NoAnswerError as error:
        raise UnreachableError(naming_settings(str(error))) from error
    except PulsarSourceError as error:
        raise RefusedError(naming_settings(str(error))) from error


def check_certificate(endpoint: Endpoint, settings: Settings) -> None:
    """Raises RefusedError if TLS keeps us from a host of the service URL for good.

    The client itself would try for half a minute, and then say only that it could not connect.
    """
    if not endpoint.service_url.startswith(ENCRYPTED):
        return
    cluster = endpoint.cluster(settings)
    for address in endpoint.service_url.removeprefix(ENCRYPTED).split(","):
        url = urlsplit(f"//{address}")
        try:
            with socket.create_connection((url.hostname, url.port or ENCRYPTED_PORT), TIMEOUT[0]) as connection:
                tls_context(cluster).wrap_socket(connection, server_hostname=url.hostname).close()
        except OSError as error:  # may pass, unless TLS caused it
            if problem := tls_problem(error, cluster):
                raise RefusedError(naming_settings(f"{ENCRYPTED}{address}: {problem}")) from error


def check_listener(endpoint: Endpoint, settings: Settings) -> None:
    """Raises RefusedError if the brokers advertise no listener with the name that is set.

    The client itself would try for half a minute, and then say only that it timed out.
    """
    if (name := settings.pulsar.listener_name) is None:
        return
    path = f"../../lookup/v2/topic/persistent/{settings.pulsar.namespace}/any?listenerName={quote(name, safe='')}"
    try:
        answer = call_admin("GET", path, endpoint, settings, accept=(404, 500)).text
    except RefusedError:  # a role with rights on single topics may not ask
        return
    if f"do not have {name} listener" in answer:
        raise RefusedError(f"pulsar.listener_name: {endpoint.admin_url} advertises no listener {name}")


def _reason(response: requests.Response) -> str:
    """The broker's reason for an error, in one line."""
    try:
        text = str(response.json()["reason"])
    except (ValueError, KeyError, TypeError):
        text = response.reason
    return text.strip().partition("\n")[0]
