from datetime import UTC, datetime, timedelta

import pulsar
import pytest
from pulsar.schema import JsonSchema, Record, String

from pulsar_lakehouse.bronze.pulsar import reading
from pulsar_lakehouse.bronze.pulsar.options import Options, PulsarSourceError
from pulsar_lakehouse.bronze.pulsar.planning import Plan
from pulsar_lakehouse.bronze.pulsar.positions import BEGINNING, Position, Range, Span
from pulsar_lakehouse.bronze.pulsar.subscription import ensure_subscriptions
from tests.bronze.broker_topics import Topics, numbers, payloads, range_of

COMPRESSIONS = [
    pulsar.CompressionType.LZ4,
    pulsar.CompressionType.ZLib,
    pulsar.CompressionType.ZSTD,
    pulsar.CompressionType.SNAPPY,
]


class Creature(Record):  # type: ignore[misc]
    name = String()


def test_all_that_a_message_carries_arrives(topics: Topics) -> None:
    topic = topics.create(partitions=1)
    sender = topics.client.create_producer(topic, producer_name="zoo", schema=JsonSchema(Creature))
    before = datetime.now(UTC) - timedelta(seconds=1)
    properties = {"colour": "green", "size": ""}
    sender.send(Creature(name="frog"), partition_key="7", properties=properties, event_timestamp=1_700_000_000_123)
    (row,) = topics.read(topic)
    assert before < row.pop("publish_time") < datetime.now(UTC) + timedelta(seconds=1)
    ledger = topics.ledgers(f"{topic}-partition-0")[0].id
    assert row == {
        "topic": topic,
        "partition": 0,
        "ledger_id": ledger,
        "entry_id": 0,
        "batch_index": -1,
        "key": "7",
        "payload": b'{\n "name": "frog"\n}',
        "properties": [("colour", "green"), ("size", "")],
        "event_time": datetime.fromtimestamp(1_700_000_000.123, UTC),
        "producer": "zoo",
        "schema_version": 0,
    }


def test_what_a_message_does_not_carry_is_null(topics: Topics) -> None:
    topic = topics.create()
    topics.send(topic, b"bare")
    (row,) = topics.read(topic)
    assert {
        name: row[name] for name in ("topic", "partition", "key", "properties", "event_time", "schema_version")
    } == {
        "topic": topic,
        "partition": 0,
        "key": None,
        "properties": [],
        "event_time": None,
        "schema_version": None,
    }


@pytest.mark.parametrize("batched", [False, True])
def test_a_tombstone_is_no_empty_payload(topics: Topics, batched: bool) -> None:
    topic = topics.create()
    topics.send(topic, b"alive", None, b"", batched=batched)
    assert payloads(topics.read(topic)) == [b"alive", None, b""]


def test_messages_of_a_batch_have_their_own_position(topics: Topics) -> None:
    topic = topics.create()
    topics.send(topic, b"a", b"b", batched=True)
    topics.send(topic, b"c")
    topics.send(topic, b"d", batched=True)
    rows = topics.read(topic)
    assert [(row["payload"], row["entry_id"], row["batch_index"]) for row in rows] == [
        (b"a", 0, 0),
        (b"b", 0, 1),
        (b"c", 1, -1),
        (b"d", 2, 0),
    ]


@pytest.mark.parametrize("batched", [False, True])
@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_compressed_messages(topics: Topics, compression: pulsar.CompressionType, batched: bool) -> None:
    topic = topics.create()
    topics.send(topic, b"a" * 10_000, b"b", batched=batched, compression_type=compression)
    assert payloads(topics.read(topic)) == [b"a" * 10_000, b"b"]


def test_a_message_as_large_as_the_broker_takes(topics: Topics) -> None:
    topic = topics.create()
    topics.send(topic, b"x" * 4_000_000)
    assert payloads(topics.read(topic)) == [b"x" * 4_000_000]


def test_large_messages_are_not_fetched_ahead_without_limit(topics: Topics, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "QUEUE_BYTES", 1_000)
    topic = topics.create()
    topics.send(topic, *[b"%d" % number * 5_000 for number in range(5)])
    topics.send(topic, b"5", b"6", batched=True)
    assert [payload[:1] for payload in payloads(topics.read(topic)) if payload] == [b"%d" % digit for digit in range(7)]


def test_rows_come_in_several_record_batches(topics: Topics, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "BATCH_ROWS", 4)
    topic = topics.create()
    topics.send_numbers(topic, range(20), batch=3)
    assert numbers(topics.read(topic)) == list(range(20))


def test_many_entries_take_no_longer_each(topics: Topics) -> None:
    topic = topics.create()
    topics.send(topic, *[b"%d" % number for number in range(20_000)])
    assert numbers(topics.read(topic)) == list(range(20_000))


def test_every_split_reads_every_message_once(topics: Topics) -> None:
    topic = topics.create(partitions=2)
    topics.send_numbers(f"{topic}-partition-0", range(12), batch=3)
    topics.roll_ledger(f"{topic}-partition-0")
    topics.send_numbers(f"{topic}-partition-0", range(12, 18))
    topics.send_numbers(f"{topic}-partition-1", range(18, 20))
    ranges = {parts: len(topics.plan(topic, minPartitions=parts)) for parts in range(1, 13)}
    assert ranges == {1: 2, 2: 2, 3: 4, 4: 4, 5: 5, 6: 5, 7: 6, 8: 6, 9: 7, 10: 7, 11: 8, 12: 8}
    for parts in ranges:
        assert numbers(topics.read(topic, minPartitions=parts)) == list(range(20))


def test_starting_after_each_entry_reads_exactly_the_rest(topics: Topics) -> None:
    topic = topics.create()
    topics.send_numbers(topic, range(6), batch=3)
    topics.send_numbers(topic, range(6, 8))
    topics.roll_ledger(topic)
    topics.send_numbers(topic, range(8, 12), batch=2)
    rows = topics.read(topic)
    for start in [BEGINNING, *topics.entries(topic)]:
        rest = [row for row in rows if Position(row["ledger_id"], row["entry_id"]) > start]
        assert topics.read(topic, startingPosition=f'{{"{topic}": "{start}"}}') == rest


def test_a_range_ends_where_it_was_planned_to(topics: Topics) -> None:
    topic = topics.create()
    topics.send_numbers(topic, range(4), batch=2)
    (planned,) = topics.plan(topic)
    topics.send_numbers(topic, range(4, 8), batch=2)
    topics.roll_ledger(topic)
    topics.send_numbers(topic, range(8, 9))
    assert numbers(topics.read_range(planned)) == [0, 1, 2, 3]


def test_a_poll_without_messages_does_not_end_a_range(topics: Topics, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "FIRST_POLL", 0.001)
    monkeypatch.setattr(reading, "POLL_SECONDS", 0.001)
    topic = topics.create()
    topics.send_numbers(topic, range(5_000), batch=500)
    assert numbers(topics.read(topic)) == list(range(5_000))


def test_entries_that_never_come_fail_the_read(topics: Topics) -> None:
    topic = topics.create()
    first, last = topics.send(topic, b"0", b"1")
    planned = range_of(topic, BEGINNING, [first, Position(last.ledger, 5)])
    with pytest.raises(PulsarSourceError) as error:
        topics.read_range(planned, readTimeout=1.5)
    assert str(error.value) == f"{topic} after -1:-1 up to {last.ledger}:5: no message for 2 s after {last}"


def test_a_ledger_deleted_after_planning_is_named(topics: Topics) -> None:
    topic = topics.create()
    topics.send_numbers(topic, range(2))
    topics.roll_ledger(topic)
    topics.send_numbers(topic, range(2, 4))
    (planned,) = topics.plan(topic)
    topics.delete_read_ledgers(topic)
    topics.send_numbers(topic, [4])
    with pytest.raises(PulsarSourceError) as error:
        topics.read_range(planned)
    lost = Position(planned.spans[0].ledger, 0)
    assert str(error.value) == f"{planned}: the broker has deleted {lost}; failOnDataLoss=false goes on"
    assert topics.read_range(planned, failOnDataLoss=False) == []


def test_a_topic_deleted_after_planning_is_an_error(topics: Topics) -> None:
    planned = Range(topics.create(), BEGINNING, (Span(1, 0, 0, 1),))
    topics.admin("DELETE", planned.partition)
    with pytest.raises(PulsarSourceError, match=f"^{planned}: .+$"):
        topics.read_range(planned, readTimeout=1)


def test_a_partition_that_the_broker_deleted_is_created_again(topics: Topics) -> None:
    topic = topics.create(partitions=2)
    topics.send(f"{topic}-partition-0", b"0")
    topics.admin("DELETE", f"{topic}-partition-1")
    assert numbers(topics.read(topic)) == [0]
    plan = Plan(Options.parse(topics.options(topic, subscription="reads")), dated=True)
    assert plan.missing == [f"{topic}-partition-1"]
    ensure_subscriptions(plan)
    topics.send(f"{topic}-partition-1", b"1")
    assert numbers(topics.read(topic)) == [0, 1]
