"""The options of the Pulsar source. They are checked before anything is read."""

import json
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from .positions import Offsets

EARLIEST, LATEST = "earliest", "latest"


class PulsarSourceError(Exception):
    """The source can't do what was asked. The message is one line that names the option, topic or range."""


class NoAnswerError(PulsarSourceError):
    """The broker did not answer, or answered with an unexpected status. A retry may succeed."""


class MissingError(PulsarSourceError):
    """There is no such topic, or partition."""


@dataclass(frozen=True, kw_only=True)
class Cluster:
    """How to reach the brokers, and who we are. Raises PulsarSourceError for credentials that don't go together."""

    service_url: str
    admin_url: str
    listener_name: str | None = None
    """Which of the addresses that a broker advertises is for us."""
    token: str | None = field(default=None, repr=False)
    token_file: str | None = None
    """A file with the token, which is read each time that a token is sent."""
    oauth2_issuer_url: str | None = None
    """An issuer that grants tokens."""
    oauth2_key_file: str | None = None
    """A JSON file with the client_id and client_secret that the issuer knows us by."""
    oauth2_audience: str | None = None
    oauth2_scope: str | None = None
    tls_certificate: str | None = None
    """A PEM file with our own certificate."""
    tls_key: str | None = None
    tls_trust_certs: str | None = None
    tls_validate_hostname: bool = True

    def __post_init__(self) -> None:
        if sum(map(bool, (self.token, self.token_file, self.oauth2_issuer_url))) > 1:
            raise PulsarSourceError("set one of token, tokenFile and oauth2IssuerUrl")
        if bool(self.oauth2_issuer_url) != bool(self.oauth2_key_file):
            raise PulsarSourceError("oauth2IssuerUrl and oauth2KeyFile come together: set both, or neither")
        if (self.tls_certificate is None) != (self.tls_key is None):
            raise PulsarSourceError("tlsCertificate and tlsKey come together: set both, or neither")

    def options(self) -> dict[str, str]:
        """The options of the source that reach the same brokers as the same user."""
        given = {name: getattr(self, attribute) for name, (attribute, _) in _OPTIONS.items() if attribute in _REACH}
        told = {name: str(value).lower() if isinstance(value, bool) else value for name, value in given.items()}
        return {name: value for name, value in told.items() if value}

    @property
    def has_token(self) -> bool:
        return bool(self.token or self.token_file or self.oauth2_issuer_url)

    @property
    def admin_urls(self) -> list[str]:
        """The URL of each host: `http://one:8080,other:8080` names two brokers of a cluster."""
        url = urlsplit(self.admin_url)
        return [f"{url.scheme}://{host}{url.path.rstrip('/')}" for host in url.netloc.split(",")]


@dataclass(frozen=True, kw_only=True)
class Options(Cluster):
    topics: tuple[str, ...]
    """Full names, `persistent://tenant/namespace/topic`."""
    subscription: str | None = None
    """A durable subscription, created if missing, acknowledged after each commit. None: the broker keeps no trace."""
    starting_position: str = EARLIEST
    """`earliest`, `latest`, a publish time in epoch milliseconds, or offsets as JSON."""
    max_bytes_per_trigger: int | None = None
    max_messages_per_trigger: int | None = None
    min_partitions: int = 1
    fail_on_data_loss: bool = True
    read_timeout: float = 120.0
    """Seconds without any message after which reading a range fails."""
    decryption_keys: Mapping[str, Path] = field(default_factory=dict)
    """PEM files of private keys, by the names under which producers encrypt messages for them."""

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> "Options":
        """Raises PulsarSourceError for an option that is missing, unknown or bad."""
        given = {name.lower(): value for name, value in options.items()}
        if unknown := sorted(given.keys() - {"path", *map(str.lower, _OPTIONS)}):
            raise PulsarSourceError(f"unknown option {unknown[0]}; the options are {', '.join(sorted(_OPTIONS))}")
        values = {}
        for name, (attribute, parse) in _OPTIONS.items():
            if (text := given.get(name.lower())) is not None:
                try:
                    values[attribute] = parse(text)
                except ValueError as error:
                    shown = "" if name == "token" else f"={text!r}"
                    raise PulsarSourceError(f"option {name}{shown}: {error}") from error
            elif name in ("serviceUrl", "adminUrl", "topic"):
                raise PulsarSourceError(f"option {name} is required")
        parsed = cls(**values)
        if parsed.max_bytes_per_trigger and parsed.max_messages_per_trigger:
            raise PulsarSourceError("set maxBytesPerTrigger or maxMessagesPerTrigger, not both")
        return parsed


def _positive(text: str) -> int:
    if not text.isdigit() or int(text) < 1:
        raise ValueError("must be a whole number, 1 or more")
    return int(text)


def _seconds(text: str) -> float:
    with suppress(ValueError):
        if (seconds := float(text)) > 0:
            return seconds
    raise ValueError("must be a number of seconds above 0")


def _boolean(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ValueError("must be true or false")
    return text.lower() == "true"


def json_web_token(text: str) -> str:
    if not re.fullmatch(r"[\w-]+\.[\w-]+\.[\w-]+", text, re.ASCII):
        raise ValueError("must be a JSON web token: three parts with a dot between, and no space or end of line")
    return text


def _topics(text: str) -> tuple[str, ...]:
    names = [name.strip() for name in text.split(",") if name.strip()]
    if not names:
        raise ValueError("must name a topic")
    return tuple(_full_name(name) for name in names)


def _full_name(topic: str) -> str:
    domain, separator, name = topic.rpartition("://")
    if separator and domain != "persistent":
        raise ValueError("only persistent topics can be read by position")
    match name.count("/"):
        case 0:
            return f"persistent://public/default/{name}"
        case 2:
            return f"persistent://{name}"
    raise ValueError("must be topic, tenant/namespace/topic or persistent://tenant/namespace/topic")


def _starting_position(text: str) -> str:
    if text in (EARLIEST, LATEST) or text.isdigit():
        return text
    try:
        Offsets.from_json(json.loads(text))
    except (ValueError, AttributeError) as error:
        raise ValueError("must be earliest, latest, epoch milliseconds or offsets as JSON") from error
    return text


def _files(text: str) -> dict[str, Path]:
    try:
        return {name: Path(file) for name, file in json.loads(text).items()}
    except (ValueError, TypeError, AttributeError) as error:
        raise ValueError("must be a JSON object of file names") from error


_OPTIONS: Mapping[str, tuple[str, Callable[[str], Any]]] = {
    "serviceUrl": ("service_url", str),
    "adminUrl": ("admin_url", lambda url: url.rstrip("/")),
    "topic": ("topics", _topics),
    "subscription": ("subscription", str),
    "startingPosition": ("starting_position", _starting_position),
    "maxBytesPerTrigger": ("max_bytes_per_trigger", _positive),
    "maxMessagesPerTrigger": ("max_messages_per_trigger", _positive),
    "minPartitions": ("min_partitions", _positive),
    "failOnDataLoss": ("fail_on_data_loss", _boolean),
    "readTimeout": ("read_timeout", _seconds),
    "decryptionKeys": ("decryption_keys", _files),
    "listenerName": ("listener_name", str),
    "token": ("token", json_web_token),
    "tokenFile": ("token_file", str),
    "oauth2IssuerUrl": ("oauth2_issuer_url", str),
    "oauth2KeyFile": ("oauth2_key_file", str),
    "oauth2Audience": ("oauth2_audience", str),
    "oauth2Scope": ("oauth2_scope", str),
    "tlsCertificate": ("tls_certificate", str),
    "tlsKey": ("tls_key", str),
    "tlsTrustCerts": ("tls_trust_certs", str),
    "tlsValidateHostname": ("tls_validate_hostname", _boolean),
}
_REACH = {each.name for each in fields(Cluster)}
