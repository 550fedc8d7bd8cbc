"""Transactions: committed messages are read once, aborted ones never, and open ones delay what is behind them."""

import pytest

from pulsar_lakehouse.bronze.pulsar.admin import Admin, EntryMetadata
from pulsar_lakehouse.bronze.pulsar.positions import BEGINNING, Position
from tests.bronze.broker_topics import Topics, numbers, payloads, range_of
from tests.java_client import JavaClient, message


def send(java: JavaClient, topic: str, *sent: bytes, to: str = "commit") -> list[Position]:
    """Send messages in a transaction, and end it."""
    transaction = java.begin()
    positions = java.send(topic, [message(each) for each in sent], transaction=transaction)
    java.commit(transaction) if to == "commit" else java.abort(transaction)
    return positions


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[Position]:
    """The entries that the broker is asked for, one by one."""
    found: list[Position] = []
    ask = Admin.entry

    def asking(admin: Admin, partition: str, position: Position) -> EntryMetadata | None:
        found.append(position)
        return ask(admin, partition, position)

    monkeypatch.setattr(Admin, "entry", asking)
    return found


def test_committed_messages_are_read_once_and_aborted_ones_never(topics: Topics, java: JavaClient) -> None:
    topic = topics.create()
    topics.send(topic, b"plain")
    send(java, topic, b"committed", b"with it")
    send(java, topic, b"aborted", to="abort")
    topics.send(topic, b"last")
    send(java, topic, b"aborted too", to="abort")
    assert payloads(topics.read(topic)) == [b"plain", b"committed", b"with it", b"last"]


def test_an_open_transaction_delays_what_is_behind_it(topics: Topics, java: JavaClient) -> None:
    topic = topics.create()
    topics.send(topic, b"before")
    transaction = java.begin()
    java.send(topic, [message(b"open")], transaction=transaction)
    topics.send(topic, b"behind")
    assert payloads(topics.read(topic)) == [b"before"]
    java.commit(transaction)
    assert payloads(topics.read(topic)) == [b"before", b"open", b"behind"]


def test_nothing_is_readable_before_an_open_transaction(topics: Topics, java: JavaClient) -> None:
    topic = topics.create()
    transaction = java.begin()
    java.send(topic, [message(b"open")], transaction=transaction)
    topics.send(topic, b"behind")
    assert topics.read(topic) == []
    java.abort(transaction)
    assert payloads(topics.read(topic)) == [b"behind"]


def test_every_start_and_end_amid_transactions(topics: Topics, java: JavaClient) -> None:
    topic = topics.create()
    for number in range(4):
        send(java, topic, str(number).encode(), to="abort" if number == 1 else "commit")
    entries = topics.entries(topic)
    for first in range(len(entries)):
        for end in range(first + 1, len(entries) + 1):
            start = entries[first - 1] if first else BEGINNING
            found = numbers(topics.read_range(range_of(topic, start, entries[first:end])))
            assert found == [at // 2 for at in range(first, end) if at % 2 == 0 and at != 2]


def test_what_the_broker_hides_is_not_asked_for(topics: Topics, java: JavaClient, asked: list[Position]) -> None:
    topic = topics.create()
    for number in range(20):
        send(java, topic, str(number).encode(), to="abort" if number >= 18 else "commit")
    assert numbers(topics.read(topic)) == list(range(18))
    assert asked == []


def test_a_large_message_that_began_before_the_range(topics: Topics, java: JavaClient) -> None:
    """The client does not hand it on, and warns of that."""
    topic = topics.create()
    send(java, topic, b"0")
    java.send(topic, [message(b"large" * 1_000)], chunk_bytes=1_000)
    send(java, topic, b"1")
    entries = topics.entries(topic)
    found = payloads(topics.read_range(range_of(topic, entries[3], entries[4:])))
    assert sorted(payload or b"" for payload in found) == [b"1", b"large" * 1_000]


def test_deleted_ledgers_are_noticed(topics: Topics, java: JavaClient) -> None:
    topic = topics.create()
    send(java, topic, b"0")
    [planned] = topics.plan(topic)
    topics.delete_read_ledgers(topic)
    send(java, topic, b"1")
    with pytest.raises(Exception, match=r"the broker has deleted .*; failOnDataLoss=false goes on"):
        topics.read_range(planned)
