"""Messages that a Java client has encrypted: with the private key they are read, without it they are kept."""

from json import dumps, loads
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

from pulsar_lakehouse.bronze.decryption import readable
from pulsar_lakehouse.bronze.pulsar.encryption import ENCRYPTION, Encryption, load_keys
from tests.bronze.broker_topics import Row, Topics, payloads
from tests.java_client import JavaClient, message


class Key:
    """A pair of keys in files."""

    def __init__(self, folder: Path, made: rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey) -> None:
        self.private, self.public = folder / "private.pem", folder / "public.pem"
        text = made.private_bytes(Encoding.PEM, PrivateFormat.TraditionalOpenSSL, NoEncryption())
        self.private.write_bytes(text)
        self.public.write_bytes(made.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo))


@pytest.fixture(scope="module")
def rsa_key(tmp_path_factory: pytest.TempPathFactory) -> Key:
    return Key(tmp_path_factory.mktemp("rsa"), rsa.generate_private_key(65537, 2048))


@pytest.fixture(scope="module")
def ec_key(tmp_path_factory: pytest.TempPathFactory) -> Key:
    return Key(tmp_path_factory.mktemp("ec"), ec.generate_private_key(ec.SECP521R1()))


def read(topics: Topics, topic: str, *keys: tuple[str, Key]) -> list[Row]:
    files = {name: key.private for name, key in keys}
    return topics.read(topic, decryptionKeys=json(files))


def json(files: dict[str, Path]) -> str:
    return str({name: str(file) for name, file in files.items()}).replace("'", '"')


def reason(row: Row) -> str:
    return Encryption.from_json(dict(row["properties"])[ENCRYPTION]).reason


def shown(row: Row) -> tuple[Any, ...]:
    event_time = row["event_time"] and row["event_time"].timestamp()
    return row["key"], row["payload"], dict(row["properties"]), event_time, row["batch_index"]


SENT = [
    message(b"one", key="é", properties={"from": "ü"}, event_time=5_000),
    message(None, key="two"),
    message(b""),
]
ALONE = [("é", b"one", {"from": "ü"}, 5.0, -1), ("two", None, {}, None, -1), (None, b"", {}, None, -1)]
IN_A_BATCH = [(*each[:4], index) for index, each in enumerate(ALONE)]


COMPRESSIONS = ["NONE", "LZ4", "ZLIB", "ZSTD", "SNAPPY"]


@pytest.mark.parametrize("key", ["rsa_key", "ec_key"])
@pytest.mark.parametrize("batched", [False, True])
def test_the_private_key_opens_messages(
    topics: Topics, java: JavaClient, request: pytest.FixtureRequest, key: str, batched: bool
) -> None:
    topic, own = topics.create(), request.getfixturevalue(key)
    for compression in COMPRESSIONS:
        java.send(topic, SENT, public_keys={"K": str(own.public)}, batched=batched, compression=compression)
    topics.send(topic, b"plain")
    *found, plain = read(topics, topic, ("K", own))
    assert [shown(row) for row in found] == len(COMPRESSIONS) * (IN_A_BATCH if batched else ALONE)
    assert plain["payload"] == b"plain"


@pytest.mark.parametrize("batched", [False, True])
def test_messages_without_a_private_key_are_kept_until_it_is_there(
    topics: Topics, java: JavaClient, rsa_key: Key, ec_key: Key, batched: bool
) -> None:
    topic = topics.create()
    java.send(topic, SENT, public_keys={"K": str(rsa_key.public)}, batched=batched)
    topics.send(topic, b"plain")
    *found, plain = read(topics, topic, ("other", ec_key))
    assert plain["payload"] == b"plain"
    assert {reason(row) for row in found} == {"encrypted with key K"}
    assert [row["batch_index"] for row in found] == ([0, 1, 2] if batched else [-1, -1, -1])
    whole = [{**row, "payload": found[0]["payload"]} for row in found] if batched else found
    assert all(readable(row, load_keys({"other": ec_key.private})) == {} for row in whole)
    later = [{**row, **readable(row, load_keys({"K": rsa_key.private}))} for row in whole]
    assert [shown(row) for row in later] == (IN_A_BATCH if batched else ALONE)


def test_one_of_several_keys_is_enough(topics: Topics, java: JavaClient, rsa_key: Key, ec_key: Key) -> None:
    topic = topics.create()
    both = {"A": str(rsa_key.public), "B": str(ec_key.public)}
    java.send(topic, [message(b"one")], public_keys=both)
    assert payloads(read(topics, topic, ("B", ec_key))) == [b"one"]
    [row] = topics.read(topic)
    assert reason(row) == "encrypted with key A, B"


@pytest.mark.parametrize("compression", ["NONE", "ZSTD"])
def test_a_large_message_whose_chunks_are_encrypted(
    topics: Topics, java: JavaClient, rsa_key: Key, compression: str
) -> None:
    topic, large = topics.create(), bytes(range(256)) * 20
    java.send(
        topic, [message(large)], public_keys={"K": str(rsa_key.public)}, chunk_bytes=1_000, compression=compression
    )
    topics.send(topic, b"plain")
    assert payloads(read(topics, topic, ("K", rsa_key))) == [large, b"plain"]
    [kept, _] = topics.read(topic)
    assert readable(kept, load_keys({"K": rsa_key.private})) == {"payload": large, "properties": {}}


def test_the_wrong_key_under_the_right_name(
    topics: Topics, java: JavaClient, rsa_key: Key, ec_key: Key, tmp_path: Path
) -> None:
    topic = topics.create()
    java.send(topic, [message(b"one")], public_keys={"K": str(rsa_key.public)})
    other = Key(tmp_path, rsa.generate_private_key(65537, 2048))
    for wrong in (ec_key, other):
        [row] = read(topics, topic, ("K", wrong))
        assert reason(row) == "encrypted with key K"


@pytest.mark.parametrize(
    "wrong",
    [
        {},
        {"messages": 2},  # the row is another one of the batch
        {"messages": -1},
        {"messages": 1.5},
        {"compression": None},
        {"compression": "ZSTD", "uncompressed_size": 10**15},
        {"parts": []},
    ],
)
def test_a_property_that_a_producer_wrote(wrong: dict[str, Any]) -> None:
    sound = Encryption(parts=(), compression="", uncompressed_size=0, messages=1, is_tombstone=False)
    given = {**loads(sound.to_json()), **wrong} if wrong else {}
    row = {"payload": None, "properties": [(ENCRYPTION, dumps(given))], "batch_index": 7}
    assert readable(row, {}) == {}


def test_a_file_that_is_no_private_key(tmp_path: Path) -> None:
    (tmp_path / "key.pem").write_text("nothing")
    with pytest.raises(ValueError, match=r"^the private key K: .*key.pem must be a PEM file without a password$"):
        load_keys({"K": tmp_path / "key.pem"})
