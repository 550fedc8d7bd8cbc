"""Compacted topics: where the broker has deleted ledgers, the last message of each key is read."""

import pytest

from pulsar_lakehouse.bronze.decryption import readable
from pulsar_lakehouse.bronze.pulsar.encryption import load_keys
from pulsar_lakehouse.progress import wait_until
from tests.bronze.broker_topics import Topics, payloads
from tests.bronze.pulsar.test_encryption import Key, read, rsa_key  # noqa: F401
from tests.java_client import JavaClient, message


def send(topics: Topics, topic: str, *pairs: tuple[str, bytes | None], batched: bool = False) -> None:
    """Send messages with keys, all of them in one ledger of their own."""
    producer = topics.client.create_producer(topic, batching_enabled=batched, batching_max_publish_delay_ms=60_000)
    for key, payload in pairs:
        producer.send_async(payload, None, partition_key=key)
    producer.flush()
    producer.close()
    topics.roll_ledger(topic)


def compact(topics: Topics, topic: str) -> None:
    topics.admin("PUT", topic, "/compaction")

    def is_done() -> bool:
        status = topics.admin("GET", topic, "/compaction")["status"]
        assert status != "ERROR"
        return bool(status == "SUCCESS")

    assert wait_until(is_done, "Compacting", timeout=60)


@pytest.mark.parametrize("batched", [False, True])
def test_what_compaction_has_kept_of_deleted_ledgers_is_read(topics: Topics, batched: bool) -> None:
    topic = topics.create()
    send(topics, topic, ("a", b"a1"), ("b", b"b1"), ("a", b"a2"), ("c", b"c1"), batched=batched)
    send(topics, topic, ("d", b"d1"), ("c", None), batched=batched)
    compact(topics, topic)
    send(topics, topic, ("b", b"b2"), ("e", b"e1"))
    topics.delete_read_ledgers(topic)
    rows = topics.read(topic)
    latest = {row["key"]: row["payload"] for row in rows}
    assert {key: payload for key, payload in latest.items() if payload} == {
        "a": b"a2",
        "b": b"b2",
        "d": b"d1",
        "e": b"e1",
    }
    assert b"a1" not in payloads(rows)
    assert len({(row["ledger_id"], row["entry_id"], row["batch_index"]) for row in rows}) == len(rows)


def test_what_is_still_there_is_read_as_it_is(topics: Topics) -> None:
    topic = topics.create()
    topics.admin("PUT", topic, "/subscription/keeps", {"ledgerId": -1, "entryId": -1, "partitionIndex": -1})
    send(topics, topic, ("a", b"a1"), ("a", b"a2"))
    compact(topics, topic)
    topics.delete_read_ledgers(topic)
    assert payloads(topics.read(topic)) == [b"a1", b"a2"]


def test_a_topic_that_holds_nothing_but_what_compaction_has_kept(topics: Topics) -> None:
    topic = topics.create()
    send(topics, topic, ("a", b"a1"), ("a", b"a2"))
    compact(topics, topic)
    topics.delete_read_ledgers(topic)
    assert payloads(topics.read(topic)) == [b"a2"]
    assert payloads(topics.read(topic, startingPosition="{}")) == [b"a2"]  # which names other partitions, if any


@pytest.mark.parametrize("batched", [False, True])
def test_encrypted_messages_that_compaction_has_kept(
    topics: Topics,
    java: JavaClient,
    rsa_key: Key,  # noqa: F811
    batched: bool,
) -> None:
    topic = topics.create()
    sent = [message(b"a1", key="a"), message(b"a2", key="a", properties={"from": "\u00fc"})]
    java.send(topic, sent, public_keys={"K": str(rsa_key.public)}, batched=batched, compression="ZLIB")
    send(topics, topic, ("b", b"b1"))
    compact(topics, topic)
    topics.delete_read_ledgers(topic)
    kept = [b"a1", b"a2"] if batched else [b"a2"]  # the broker can't look into an encrypted batch
    assert payloads(read(topics, topic, ("K", rsa_key))) == [*kept, b"b1"]
    *rows, plain = topics.read(topic)
    assert plain["payload"] == b"b1"
    opened = [readable({**row, "payload": rows[0]["payload"]}, load_keys({"K": rsa_key.private})) for row in rows]
    assert [(each["payload"], each["properties"]) for each in opened][-1] == (b"a2", {"from": "\u00fc"})
    assert len(opened) == len(kept)
