"""A broker as companies run it: it wants to know who asks, by a token or a certificate, and encrypts."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
import trustme
from cryptography.hazmat.primitives import serialization

from pulsar_lakehouse.local import broker
from pulsar_lakehouse.local.processes import free_port
from pulsar_lakehouse.pulsar.endpoint import Endpoint
from pulsar_lakehouse.settings import load_settings
from tests.bronze.broker_topics import Topics
from tests.tokens import AUTHENTICATION, token


@dataclass(frozen=True, kw_only=True)
class Encrypted:
    """The broker's encrypted ports, and the authority that signs certificates."""

    endpoint: Endpoint
    authority: trustme.CA
    folder: Path

    @property
    def trusted(self) -> Path:
        return self.folder / "trusted.pem"

    def issue(self, name: str, *, common_name: str | None = None) -> tuple[Path, Path]:
        """The files of a certificate for a host, or for a role, and of its key."""
        own = self.authority.issue_cert(name, common_name=common_name)
        certificate, key = (self.folder / f"{common_name or name}{suffix}" for suffix in (".pem", ".key"))
        own.cert_chain_pems[0].write_to_path(certificate)
        form = (serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
        loaded = serialization.load_pem_private_key(own.private_key_pem.bytes(), None)
        key.write_bytes(loaded.private_bytes(*form))  # the only format that Pulsar reads
        return certificate, key


def encrypted_ports(folder: Path) -> Encrypted:
    authority, ports = trustme.CA(), [free_port() for _ in range(2)]
    authority.cert_pem.write_to_path(folder / "trusted.pem")
    endpoint = Endpoint(service_url=f"pulsar+ssl://127.0.0.1:{ports[0]}", admin_url=f"https://127.0.0.1:{ports[1]}")
    return Encrypted(endpoint=endpoint, authority=authority, folder=folder)


@contextmanager
def guarded_broker(home: Path, encrypted: Encrypted, configuration: str = "", *, port: int = 0) -> Iterator[Topics]:
    """Topics of a broker that wants a token or a certificate, and whose superuser is `owner`."""
    settings = load_settings(home=home, pulsar={"token": token("owner"), "broker_port": port})
    certificate, key = encrypted.issue("127.0.0.1")
    configured = broker._configured
    access = f"""
brokerServicePortTls={encrypted.endpoint.service_url.rpartition(":")[2]}
webServicePortTls={encrypted.endpoint.admin_url.rpartition(":")[2]}
tlsCertificateFilePath={certificate}
tlsKeyFilePath={key}
tlsTrustCertsFilePath={encrypted.trusted}
{configuration}
"""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(broker, "_configured", lambda *given: configured(*given) + AUTHENTICATION + access)
        endpoint = broker.start(settings)
    topics = Topics("public/guarded", endpoint, settings)
    yield topics
    topics.close()
    broker.stop(settings)
