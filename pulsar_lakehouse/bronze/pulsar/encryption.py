"""Decrypts messages that producers have encrypted, with the private keys of the consumers.

A producer encrypts payloads with AES, by a data key of its own that it changes every few hours. Each message carries
that data key, encrypted with the public key of each consumer. The payload was compressed before.
"""

import json
import zlib
from base64 import b64decode, b64encode
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import lru_cache
from pathlib import Path
from typing import Any

import pyarrow as pa
from cryptography.exceptions import InvalidSignature, InvalidTag, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, hmac
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.x963kdf import X963KDF
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from .wire import fields

ENCRYPTION = "pulsar.encryption"
"""The property of a message that landed encrypted: its `Encryption` as JSON."""

MAC_KEY = 16
"""Bytes of the key of ECIES' message authentication code."""

PrivateKey = rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey


@dataclass(frozen=True, kw_only=True)
class Part:
    """A part of a payload that was encrypted by itself: all of it, or the chunk of an entry."""

    length: int
    keys: Mapping[str, bytes]
    """The data key, encrypted with the public key of each name."""
    parameter: bytes
    """The initialisation vector of AES in Galois/counter mode."""


@dataclass(frozen=True, kw_only=True)
class Encryption:
    """What is needed beside a private key to read a payload."""

    parts: tuple[Part, ...]
    compression: str
    """Pulsar's name, such as ZSTD; empty for none."""
    uncompressed_size: int
    messages: int | None
    """The number of messages in the batch; None for a message that was sent alone."""
    is_tombstone: bool
    """Whether a message that was sent alone has no payload, and not an empty one."""

    @property
    def key_names(self) -> list[str]:
        return sorted({name for part in self.parts for name in part.keys})

    @property
    def reason(self) -> str:
        """Why the payload can't be read without a private key."""
        return f"encrypted with key {', '.join(self.key_names)}"

    def to_json(self) -> str:
        parts = [
            {
                "length": part.length,
                "keys": {name: b64encode(value).decode() for name, value in part.keys.items()},
                "parameter": b64encode(part.parameter).decode(),
            }
            for part in self.parts
        ]
        return json.dumps({**vars(self), "parts": parts})

    @classmethod
    def from_json(cls, text: str) -> "Encryption":
        """Raises ValueError if it is not such a text."""
        try:
            given = json.loads(text)
            parts = tuple(
                Part(
                    length=part["length"],
                    keys={name: b64decode(value) for name, value in part["keys"].items()},
                    parameter=b64decode(part["parameter"]),
                )
                for part in given["parts"]
            )
            found = cls(**{**given, "parts": parts})
        except (TypeError, KeyError, AttributeError, ValueError) as error:
            raise ValueError(f"{ENCRYPTION}: not what landing writes") from error
        sizes = [found.uncompressed_size, *(part.length for part in parts)]
        counts = [*sizes, 1 if found.messages is None else found.messages]
        if not isinstance(found.compression, str) or not all(type(each) is int and each >= 0 for each in counts):
            raise ValueError(f"{ENCRYPTION}: not what landing writes")
        return found


@dataclass(frozen=True, kw_only=True)
class Opened:
    """A decrypted message. What one that was sent alone has beside its payload was never encrypted, and is not here."""

    payload: bytes | None
    key: str | None = None
    properties: Mapping[str, str] = field(default_factory=dict)
    event_time: int = 0
    """In epoch milliseconds; 0 for none."""
    batch_index: int = -1
    """Its index in the producer's batch; -1 for a message that was sent alone."""


@dataclass(frozen=True, kw_only=True)
class Sealed:
    """An encrypted entry. Unless it is a batch, only its payload is encrypted."""

    payload: bytes
    encryption: Encryption
    key: str | None
    properties: Mapping[str, str]
    event_time: int
    """In epoch milliseconds; 0 for none. So is the next one."""
    publish_time: int
    producer: str
    schema_version: int | None

    @classmethod
    def of(cls, headers: Mapping[str, str], payload: bytes) -> "Sealed":
        """An entry as the admin API returns it, which writes `?` for what is not Latin-1 in a key or a property."""
        given = {name.lower().removeprefix("x-pulsar-"): value for name, value in headers.items()}
        keys = [fields(b64decode(each)) for each in given["base64-encryption-keys"].split(",")]
        named = {_text(key[1]): _bytes(key[2]) for key in map(dict, keys)}
        version = given.get("base64-schema-version")
        batch = given.get("num-batch-message")
        encryption = Encryption(
            parts=(Part(length=len(payload), keys=named, parameter=b64decode(given["base64-encryption-param"])),),
            compression=given.get("compression", ""),
            uncompressed_size=int(given.get("uncompressed-size", 0)),
            messages=int(batch) if batch else None,
            is_tombstone=given.get("null-value") == "true",
        )
        return cls(
            payload=payload,
            encryption=encryption,
            key=given.get("partition-key") or None,
            properties=json.loads(given["property"]),
            event_time=_milliseconds(given["event-time"]) if "event-time" in given else 0,
            publish_time=_milliseconds(given["publish-time"]),
            producer=given["producer-name"],
            schema_version=int.from_bytes(b64decode(version)) if version else None,
        )

    @classmethod
    def received(cls, message: Any) -> "Sealed":
        """A message of the client's own library that it could not decrypt, and so hands on as it is: a whole entry."""
        told, payload, version = message.encryption_context(), message.data(), message.int_schema_version()
        keys = {key.key: key.value() for key in told.keys()}  # noqa: SIM118
        encryption = Encryption(
            parts=(Part(length=len(payload), keys=keys, parameter=told.param()),),
            compression=told.compression_type().name.upper(),
            uncompressed_size=told.uncompressed_message_size(),
            messages=told.batch_size() if told.batch_size() >= 0 else None,
            is_tombstone=message.has_null_value(),
        )
        return cls(
            payload=payload,
            encryption=encryption,
            key=message.partition_key() or None,
            properties=message.properties(),
            event_time=message.event_timestamp(),
            publish_time=message.publish_timestamp(),
            producer=message.producer_name(),
            schema_version=version if version >= 0 else None,
        )

    @classmethod
    def joined(cls, chunks: Sequence["Sealed"]) -> "Sealed":
        """The message whose chunks these are, each of which is encrypted by itself."""
        payload = b"".join(chunk.payload for chunk in chunks)
        parts = tuple(part for chunk in chunks for part in chunk.encryption.parts)
        return replace(chunks[-1], payload=payload, encryption=replace(chunks[-1].encryption, parts=parts))

    def opened(self, keys: Mapping[str, PrivateKey]) -> list[Opened]:
        """The messages, or, if the keys don't open them, what must be kept of each.

        The first message of a batch then keeps the payload of all, and each one its `Encryption` in a property.
        """
        found, count = decrypt(self.payload, self.encryption, keys), self.encryption.messages
        alone = Opened(payload=self.payload, key=self.key, properties=self.properties, event_time=self.event_time)
        if isinstance(found, list):
            return [replace(alone, payload=found[0].payload)] if count is None else found
        mark = {ENCRYPTION: self.encryption.to_json()}
        if count is None:
            return [replace(alone, properties={**self.properties, **mark})]
        payloads = [self.payload, *[b""] * (count - 1)]
        return [Opened(payload=each, properties=mark, batch_index=index) for index, each in enumerate(payloads)]


def load_keys(files: Mapping[str, Path]) -> dict[str, PrivateKey]:
    """The private keys of PEM files, by name. Raises ValueError, in one line, for one that can't be read."""
    return {name: _load_key(name, file) for name, file in files.items()}


def decrypt(payload: bytes, encryption: Encryption, keys: Mapping[str, PrivateKey]) -> list[Opened] | str:
    """The messages of an encrypted payload: several if it is a batch. Else, in one line, why it can't be read."""
    reason = encryption.reason
    if not all(part.keys.keys() & keys.keys() for part in encryption.parts):
        return reason
    try:
        opened = b"".join(_decrypted_parts(payload, encryption, keys))
    except (InvalidTag, InvalidSignature, ValueError):
        return f"{reason}, and the private key of that name does not open it"
    try:
        plain = _decompressed(opened, encryption)
        if encryption.messages is None:
            return [Opened(payload=None if encryption.is_tombstone else plain)]
        return list(_unpacked(plain, encryption.messages))
    except (zlib.error, pa.ArrowException, OSError, LookupError, ValueError, MemoryError):
        return f"{reason}, and not readable once it is decrypted"


def _load_key(name: str, file: Path) -> PrivateKey:
    try:
        key = load_pem_private_key(file.read_bytes(), password=None)
    except OSError as error:
        raise ValueError(f"the private key {name}: {file} can't be read: {error.strerror}") from error
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise ValueError(f"the private key {name}: {file} must be a PEM file without a password") from error
    if not isinstance(key, PrivateKey):
        raise ValueError(f"the private key {name}: {file} must be of RSA or ECDSA")
    return key


def _decrypted_parts(payload: bytes, encryption: Encryption, keys: Mapping[str, PrivateKey]) -> Iterator[bytes]:
    at = 0
    for part in encryption.parts:
        name = min(part.keys.keys() & keys.keys())
        yield AESGCM(_data_key(part.keys[name], keys[name])).decrypt(
            part.parameter, payload[at : at + part.length], None
        )
        at += part.length


@lru_cache(maxsize=1_000)
def _data_key(encrypted: bytes, key: PrivateKey) -> bytes:
    if isinstance(key, rsa.RSAPrivateKey):
        oaep = padding.OAEP(padding.MGF1(hashes.SHA1()), hashes.SHA1(), None)
        return key.decrypt(encrypted, oaep)
    return _ecies(encrypted, key)


def _ecies(encrypted: bytes, key: ec.EllipticCurvePrivateKey) -> bytes:
    """Decrypts what Bouncy Castle's ECIES has encrypted: the sender's public key, the text, and its code."""
    size, mac = 1 + 2 * ((key.curve.key_size + 7) // 8), hashes.SHA1.digest_size
    sender, text, code = encrypted[:size], encrypted[size:-mac], encrypted[-mac:]
    shared = key.exchange(ec.ECDH(), ec.EllipticCurvePublicKey.from_encoded_point(key.curve, sender))
    derived = X963KDF(hashes.SHA1(), MAC_KEY + len(text), None).derive(sender + shared)
    check = hmac.HMAC(derived[:MAC_KEY], hashes.SHA1())
    check.update(text + bytes(8))
    check.verify(code)
    return bytes(one ^ other for one, other in zip(text, derived[MAC_KEY:], strict=True))


def _decompressed(data: bytes, encryption: Encryption) -> bytes:
    match encryption.compression:
        case "" | "NONE":
            return data
        case "ZLIB":
            return zlib.decompressobj().decompress(data)  # the Java client does not end the stream
        case name:
            codec = {"LZ4": "lz4_raw"}.get(name, name.lower())
            found: bytes = pa.decompress(data, encryption.uncompressed_size, codec=codec, asbytes=True)
            return found


def _unpacked(data: bytes, messages: int) -> Iterator[Opened]:
    """The messages of a batch: of each, the size of its metadata, the metadata (SingleMessageMetadata), the payload."""
    at = 0
    for index in range(messages):
        begin = at + 4
        end = begin + int.from_bytes(data[at:begin])
        found: dict[int, Any] = {}
        properties = {}
        for number, value in fields(data[begin:end]):
            if number == 1:
                pair = dict(fields(_bytes(value)))
                properties[_text(pair[1])] = _text(pair[2])
            found[number] = value
        at = end + found[3]
        if at > len(data):
            raise IndexError("a batch is cut off")
        key = None if found.get(10) or 2 not in found else _text(found[2])
        payload = None if found.get(9) else data[end:at]
        yield Opened(
            payload=payload, key=key or None, properties=properties, event_time=found.get(5, 0), batch_index=index
        )


def _milliseconds(time: str) -> int:
    return round(datetime.fromisoformat(time).timestamp() * 1000)


def _text(value: int | bytes) -> str:
    return _bytes(value).decode()


def _bytes(value: int | bytes) -> bytes:
    if isinstance(value, int):
        raise ValueError("a field has another type")
    return value
