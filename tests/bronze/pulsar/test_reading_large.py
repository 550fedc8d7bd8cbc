"""Messages sent in chunks: each is one row at the position of its last chunk, in the range with that chunk."""

from collections import Counter

import pytest

from pulsar_lakehouse.bronze.pulsar import reading
from pulsar_lakehouse.bronze.pulsar.positions import BEGINNING
from tests.bronze.broker_topics import Topics, payloads, range_of

LARGE = b"large" * 2_400_000
"""12 MB: three chunks."""


def send_large(topics: Topics, topic: str, *messages: bytes) -> None:
    topics.send(topic, *messages, chunking_enabled=True)


def test_a_large_message_is_one_row(topics: Topics) -> None:
    topic = topics.create()
    topics.send(topic, b"first")
    send_large(topics, topic, LARGE)
    topics.send(topic, b"last")
    assert [(row["payload"], row["entry_id"]) for row in topics.read(topic)] == [
        (b"first", 0),
        (LARGE, 3),
        (b"last", 4),
    ]


def test_two_large_messages_at_the_end(topics: Topics) -> None:
    topic = topics.create()
    send_large(topics, topic, LARGE, LARGE[::-1])
    assert payloads(topics.read(topic)) == [LARGE, LARGE[::-1]]


def test_a_start_amid_the_chunks(topics: Topics) -> None:
    topic = topics.create()
    topics.send(topic, b"first")
    send_large(topics, topic, LARGE)
    topics.send(topic, b"last")
    _, one, two, three, _ = topics.entries(topic)
    read = {start: payloads(topics.read(topic, startingPosition=f'{{"{topic}": "{start}"}}')) for start in (one, two)}
    assert read == {one: [LARGE, b"last"], two: [LARGE, b"last"]}
    assert payloads(topics.read(topic, startingPosition=f'{{"{topic}": "{three}"}}')) == [b"last"]


def test_a_start_amid_the_last_chunks_of_a_topic(topics: Topics) -> None:
    topic = topics.create()
    send_large(topics, topic, LARGE)
    for start in topics.entries(topic)[:2]:
        assert payloads(topics.read(topic, startingPosition=f'{{"{topic}": "{start}"}}')) == [LARGE]


def test_an_end_amid_the_chunks(topics: Topics) -> None:
    topic = topics.create()
    topics.send(topic, b"first")
    send_large(topics, topic, LARGE)
    entries = topics.entries(topic)
    for end in (2, 3):
        assert payloads(topics.read_range(range_of(topic, BEGINNING, entries[:end]))) == [b"first"]
    assert topics.read_range(range_of(topic, entries[0], entries[1:3])) == []


@pytest.mark.parametrize("parts", [2, 3, 5, 8])
def test_every_split_reads_large_messages_once(topics: Topics, parts: int) -> None:
    topic = topics.create()
    topics.send(topic, b"first")
    send_large(topics, topic, LARGE, LARGE[::-1])
    topics.send(topic, b"last")
    assert len(topics.plan(topic, minPartitions=parts)) == parts
    assert payloads(topics.read(topic, minPartitions=parts)) == [b"first", LARGE, LARGE[::-1], b"last"]


def test_chunks_of_two_producers_between_each_other(topics: Topics) -> None:
    topic = topics.create()
    senders = [topics.client.create_producer(topic, chunking_enabled=True, batching_enabled=False) for _ in range(2)]
    for sender, message in zip(senders, (LARGE, LARGE[::-1]), strict=True):
        sender.send_async(message, lambda result, id: None)
    topics.send(topic, b"small")
    for sender in senders:
        sender.flush()
    for parts in (1, 3, 7):
        assert Counter(payloads(topics.read(topic, minPartitions=parts))) == Counter([LARGE, LARGE[::-1], b"small"])


def test_a_large_message_is_waited_for(topics: Topics, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "FIRST_POLL", 0.001)
    monkeypatch.setattr(reading, "POLL_SECONDS", 0.001)
    topic = topics.create()
    send_large(topics, topic, LARGE)
    assert payloads(topics.read(topic)) == [LARGE]
