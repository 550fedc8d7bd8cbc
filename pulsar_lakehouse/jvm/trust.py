"""The certificate authorities that Java trusts: those of the machine, which may have an authority of its company."""

import hashlib
import os
import ssl
import warnings
from pathlib import Path

from cryptography.hazmat.primitives.serialization import NoEncryption
from cryptography.hazmat.primitives.serialization.pkcs12 import PKCS12Certificate, serialize_java_truststore
from cryptography.x509 import load_pem_x509_certificates


def trust_store(folder: Path) -> Path | None:
    """A trust store in `folder` with the authorities that Python trusts; None if they are in no file that can be read.

    OpenSSL says where that file is, and the environment variable SSL_CERT_FILE can name another. Raises OSError if the
    store can't be written.
    """
    file = ssl.get_default_verify_paths().cafile
    if file is None:
        return None
    authorities = Path(file).read_bytes()
    store = folder / f"cacerts-{hashlib.sha256(authorities).hexdigest()[:12]}"
    if not store.exists():
        try:
            with warnings.catch_warnings(action="ignore"):  # some old authorities break rules of today
                certificates = load_pem_x509_certificates(authorities)
        except ValueError:  # no certificate, or one that is broken
            return None
        named = [PKCS12Certificate(each, str(index).encode()) for index, each in enumerate(certificates)]
        draft = store.with_suffix(f".{os.getpid()}")
        draft.write_bytes(serialize_java_truststore(named, NoEncryption()))
        draft.replace(store)
    return store
