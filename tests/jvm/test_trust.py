from pathlib import Path

import pytest
import trustme
from cryptography.hazmat.primitives.serialization.pkcs12 import load_pkcs12

from pulsar_lakehouse.jvm.trust import trust_store


def test_java_trusts_the_authorities_of_the_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file, authorities = tmp_path / "authorities.pem", [trustme.CA(), trustme.CA()]
    file.write_bytes(b"".join(authority.cert_pem.bytes() for authority in authorities))
    monkeypatch.setenv("SSL_CERT_FILE", str(file))
    store = trust_store(tmp_path)
    assert store is not None
    kept = load_pkcs12(store.read_bytes(), None).additional_certs
    assert {each.certificate for each in kept} == {each._certificate for each in authorities}


def test_a_changed_file_makes_another_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "authorities.pem"))
    trustme.CA().cert_pem.write_to_path(tmp_path / "authorities.pem")
    first = trust_store(tmp_path)
    assert trust_store(tmp_path) == first
    trustme.CA().cert_pem.write_to_path(tmp_path / "authorities.pem")
    assert trust_store(tmp_path) != first


@pytest.mark.parametrize("content", [None, b"", b"-----BEGIN CERTIFICATE-----\nno\n-----END CERTIFICATE-----\n"])
def test_no_store_without_a_file_of_certificates(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: bytes | None
) -> None:
    if content is not None:
        (tmp_path / "authorities.pem").write_bytes(content)
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "authorities.pem"))
    assert trust_store(tmp_path) is None
