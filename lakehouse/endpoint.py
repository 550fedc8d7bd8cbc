"""How a Pulsar cluster is reached: by its binary protocol to send, by its admin API to ask and configure."""

from dataclasses import dataclass

import pulsar
import requests

from lakehouse.errors import BrokerError
from lakehouse.settings import Settings

TIMEOUT = (5, 30)
"""Seconds to connect, and to wait for an answer, of one admin call."""


@dataclass(frozen=True, kw_only=True)
class Endpoint:
    service_url: str
    admin_url: str


def connect(endpoint: Endpoint, settings: Settings) -> pulsar.Client:
    """A client with the token and the certificates of the settings; the caller closes it.

    What it has to say goes to `pulsar-client.log` in the home.
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
    method: str,
    path: str,
    endpoint: Endpoint,
    settings: Settings,
    *,
    body: object = None,
    accept: tuple[int, ...] = (),
) -> requests.Response:
    """Call `path`, below `/admin/v2/`; `accept` are error codes to return like a success.

    Raises BrokerError if there is no answer, or if it is another error.
    """
    url = f"{endpoint.admin_url.rstrip('/')}/admin/v2/{path}"
    token, certificates = settings.pulsar.token, settings.pulsar.tls_trust_certs
    headers = {"Authorization": f"Bearer {token.get_secret_value()}"} if token else {}
    verify = str(certificates) if certificates else True
    try:
        with requests.Session() as session:
            session.trust_env = "//127.0.0.1:" not in url  # no proxy leads to this machine
            response = session.request(method, url, json=body, headers=headers, verify=verify, timeout=TIMEOUT)
    except requests.RequestException as error:
        raise BrokerError(f"{endpoint.admin_url}: no answer from the broker: {type(error).__name__}") from error
    if response.status_code in (401, 403):
        raise BrokerError(f"{method} {url}: the token was refused: {_reason(response)}")
    if not response.ok and response.status_code not in accept:
        raise BrokerError(f"{method} {url}: the broker answered {response.status_code}: {_reason(response)}")
    return response


def _reason(response: requests.Response) -> str:
    """What the broker says of an error, in one line."""
    try:
        text = str(response.json()["reason"])
    except (ValueError, KeyError, TypeError):
        text = response.reason
    return text.strip().partition("\n")[0]
