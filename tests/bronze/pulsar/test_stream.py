"""Streaming queries: limits, restarts, acknowledgement, new partitions, progress."""

import json
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from pulsar_lakehouse.bronze.pulsar import PulsarDataSource
from tests.bronze.broker_topics import Topics

Batches = dict[int, list[int]]


class Stream:
    """A stream of numbers with its own checkpoint, and the numbers that each batch received."""

    def __init__(self, spark: SparkSession, topics: Topics, checkpoint: Path) -> None:
        self._spark, self._topics, self._checkpoint = spark, topics, str(checkpoint)
        self.batches: Batches = defaultdict(list)
        self.fails = False
        """Whether the next batch fails."""

    def start(self, topic: str, **options: object) -> StreamingQuery:
        return self._writer(topic, **options).start()

    def run(self, topic: str, **options: object) -> Batches:
        """Read what is there, then stop; returns the batches of this run."""
        self.batches = defaultdict(list)
        self.start_triggered(topic, **options).awaitTermination()
        return dict(self.batches)

    def start_triggered(self, topic: str, **options: object) -> StreamingQuery:
        return self._writer(topic, **options).trigger(availableNow=True).start()

    def _writer(self, topic: str, **options: object) -> DataStreamWriter:
        rows = self._spark.readStream.format("pulsar").options(**self._topics.options(topic, **options)).load()
        return rows.writeStream.option("checkpointLocation", self._checkpoint).foreachBatch(self._keep)

    def _keep(self, rows: DataFrame, batch: int) -> None:
        values = rows.selectExpr("CAST(CAST(payload AS STRING) AS INT) AS number").collect()
        if self.fails:
            self.fails = False
            raise RuntimeError("power cut")
        self.batches[batch] = sorted(row.number for row in values)


@pytest.fixture
def stream(spark: SparkSession, topics: Topics, tmp_path: Path) -> Iterator[Stream]:
    spark.dataSource.register(PulsarDataSource)
    yield Stream(spark, topics, tmp_path)
    for query in spark.streams.active:
        query.stop()


def read_numbers(batches: Batches) -> list[int]:
    return sorted(number for batch in batches.values() for number in batch)


def test_a_limit_in_bytes_makes_several_batches(stream: Stream, topics: Topics) -> None:
    topic = topics.create(partitions=2)
    for partition, base in ((0, 0), (1, 100)):
        topics.send_numbers(f"{topic}-partition-{partition}", range(base, base + 40), batch=4)
    size = sum(ledger.bytes for part in (0, 1) for ledger in topics.ledgers(f"{topic}-partition-{part}"))
    batches = stream.run(topic, maxBytesPerTrigger=size // 3)
    assert len(batches) in (3, 4)
    assert read_numbers(batches) == [*range(40), *range(100, 140)]


def test_a_limit_in_messages_makes_several_batches(stream: Stream, topics: Topics) -> None:
    topic = topics.create()
    topics.send_numbers(topic, range(40), batch=4)
    assert stream.run(topic, maxMessagesPerTrigger=16) == {
        0: list(range(16)),
        1: list(range(16, 32)),
        2: list(range(32, 40)),
    }


def test_a_limit_never_stops_a_stream(stream: Stream, topics: Topics) -> None:
    topic = topics.create()
    topics.send_numbers(topic, range(6), batch=2)
    assert stream.run(topic, maxBytesPerTrigger=1) == {0: [0, 1], 1: [2, 3], 2: [4, 5]}


def test_a_restart_reads_only_what_is_new(stream: Stream, topics: Topics) -> None:
    topic = topics.create()
    topics.send_numbers(topic, range(3))
    assert stream.run(topic) == {0: [0, 1, 2]}
    assert stream.run(topic) == {}
    topics.roll_ledger(topic)
    topics.send_numbers(topic, range(3, 5))
    assert stream.run(topic) == {1: [3, 4]}


def test_a_batch_that_failed_has_the_same_messages_when_it_is_run_again(stream: Stream, topics: Topics) -> None:
    topic = topics.create()
    topics.send_numbers(topic, range(3))
    stream.fails = True
    with pytest.raises(StreamingQueryException, match="power cut"):
        stream.run(topic)
    topics.send_numbers(topic, range(3, 5))
    assert stream.run(topic) == {0: [0, 1, 2], 1: [3, 4]}


def test_partitions_added_between_two_runs(stream: Stream, topics: Topics) -> None:
    topic = topics.create(partitions=1)
    topics.send_numbers(f"{topic}-partition-0", [0])
    assert stream.run(topic, subscription="lake") == {0: [0]}
    topics.grow(topic, partitions=2)
    topics.send_numbers(f"{topic}-partition-1", [1])
    assert stream.run(topic, subscription="lake") == {1: [1]}
    assert topics.backlog(f"{topic}-partition-1", "lake") == 0


def test_partitions_added_to_a_running_stream(stream: Stream, topics: Topics) -> None:
    topic = topics.create(partitions=2)
    topics.send_numbers(f"{topic}-partition-0", [0])
    query = stream.start(topic, subscription="lake")
    query.processAllAvailable()
    topics.grow(topic, partitions=3)
    topics.send_numbers(f"{topic}-partition-2", [1])
    query.processAllAvailable()
    assert stream.batches == {0: [0], 1: [1]}
    assert topics.admin("GET", f"{topic}-partition-2", "/subscriptions") == ["lake"]


def test_the_subscription_is_acknowledged_after_the_batch(
    stream: Stream, topics: Topics, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = topics.create()
    topics.send_numbers(topic, range(6), batch=2)
    seen = []
    keep = stream._keep

    def keep_and_look(rows: DataFrame, batch: int) -> None:
        keep(rows, batch)
        seen.append(topics.backlog(topic, "lake"))

    monkeypatch.setattr(stream, "_keep", keep_and_look)
    stream.run(topic, subscription="lake", maxMessagesPerTrigger=2)
    assert (stream.batches, seen, topics.backlog(topic, "lake")) == ({0: [0, 1], 1: [2, 3], 2: [4, 5]}, [3, 2, 1], 0)


def test_without_a_subscription_nothing_is_left_in_the_broker(stream: Stream, topics: Topics) -> None:
    topic = topics.create()
    topics.send_numbers(topic, [0])
    assert stream.run(topic) == {0: [0]}
    assert topics.admin("GET", topic, "/subscriptions") == []


def test_what_was_acknowledged_may_be_deleted(stream: Stream, topics: Topics) -> None:
    topic = topics.create()
    topics.send_numbers(topic, range(2))
    assert stream.run(topic, subscription="lake") == {0: [0, 1]}
    topics.delete_read_ledgers(topic)
    assert topics.ledgers(topic) == []
    assert stream.run(topic, subscription="lake") == {}
    topics.send_numbers(topic, [2])
    assert stream.run(topic, subscription="lake") == {1: [2]}
    assert topics.backlog(topic, "lake") == 0


def test_a_deleted_ledger_fails_the_stream_until_told_to_go_on(stream: Stream, topics: Topics) -> None:
    topic = topics.create()
    topics.send_numbers(topic, range(2))
    assert stream.run(topic) == {0: [0, 1]}
    last = topics.entries(topic)[-1]
    topics.send_numbers(topic, [2])
    topics.delete_read_ledgers(topic)
    topics.send_numbers(topic, [3])
    with pytest.raises(StreamingQueryException, match=f"{topic}: the broker no longer has the ledger of {last}, "):
        stream.run(topic)
    assert stream.run(topic, failOnDataLoss=False) == {1: [3]}


def test_a_missing_topic_fails_in_one_line(stream: Stream, topics: Topics) -> None:
    topic = f"persistent://{topics.namespace}/none"
    with pytest.raises(StreamingQueryException) as error:
        stream.run(topic)
    assert (
        f"pulsar_lakehouse.bronze.pulsar.options.MissingError: {topic}: no such topic" in str(error.value).splitlines()
    )


def test_progress_shows_what_the_broker_has(stream: Stream, topics: Topics) -> None:
    topic = topics.create()
    _, second, third = (str(position) for position in topics.send(topic, b"0", b"1", b"2"))
    query = stream.start_triggered(topic, maxMessagesPerTrigger=2)
    query.awaitTermination()
    sources = [progress["sources"][0] for progress in query.recentProgress]
    ends = [(json.loads(source["endOffset"])[topic], json.loads(source["latestOffset"])[topic]) for source in sources]
    assert ends == [(second, third), (third, third)]
