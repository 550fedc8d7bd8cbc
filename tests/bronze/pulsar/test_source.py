"""Planning: where a read starts and ends, and what it refuses."""

import ast
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from pulsar_lakehouse.bronze import pulsar as bronze_pulsar
from pulsar_lakehouse.bronze.pulsar import PulsarDataSource
from pulsar_lakehouse.bronze.pulsar.options import Options, PulsarSourceError
from pulsar_lakehouse.bronze.pulsar.source import PulsarStreamReader
from tests.bronze.broker_topics import Topics, numbers


def test_a_batch_query(spark: SparkSession, topics: Topics) -> None:
    spark.dataSource.register(PulsarDataSource)
    topic = topics.create(partitions=2)
    for partition in (0, 1):
        topics.send_numbers(f"{topic}-partition-{partition}", range(10), batch=5)
    rows = spark.read.format("pulsar").options(**topics.options(topic, minPartitions=4)).load()
    sums = rows.groupBy("partition").agg(F.sum(F.col("payload").cast("string").cast("int")).alias("sum"))
    assert sorted(sums.collect()) == [(0, 45), (1, 45)]
    assert rows.filter("payload IS NULL OR properties IS NULL OR publish_time IS NULL").collect() == []


def test_a_batch_query_of_an_empty_topic(spark: SparkSession, topics: Topics) -> None:
    spark.dataSource.register(PulsarDataSource)
    rows = spark.read.format("pulsar").options(**topics.options(topics.create(partitions=2))).load()
    assert rows.collect() == []


def test_a_batch_query_of_a_missing_topic(spark: SparkSession, topics: Topics) -> None:
    spark.dataSource.register(PulsarDataSource)
    with pytest.raises(PySparkException, match=f"MissingError: persistent://{topics.namespace}/none: no such topic"):
        spark.read.format("pulsar").options(**topics.options(f"{topics.namespace}/none")).load().collect()


def test_several_topics_in_one_read(topics: Topics) -> None:
    users, orders = topics.create("users"), topics.create("orders", partitions=2)
    topics.send_numbers(users, [1])
    topics.send_numbers(f"{orders}-partition-0", [2])
    topics.send_numbers(f"{orders}-partition-1", [3])
    rows = topics.read(f"{users},{orders}")
    assert [(row["topic"], row["partition"], row["payload"]) for row in rows] == [
        (users, 0, b"1"),
        (orders, 0, b"2"),
        (orders, 1, b"3"),
    ]


def test_one_partition_of_a_topic(topics: Topics) -> None:
    topic = topics.create(partitions=2)
    topics.send_numbers(f"{topic}-partition-0", [0])
    topics.send_numbers(f"{topic}-partition-1", [1])
    (row,) = topics.read(f"{topic}-partition-1")
    assert (row["topic"], row["partition"], row["payload"]) == (topic, 1, b"1")


def test_a_topic_that_only_looks_like_a_partition(topics: Topics) -> None:
    topic = topics.create("my-partition-table")
    topics.send_numbers(topic, [0])
    (row,) = topics.read(topic)
    assert (row["topic"], row["partition"]) == (topic, 0)


def test_latest_skips_what_is_there(topics: Topics) -> None:
    topic = topics.create()
    topics.send_numbers(topic, range(3))
    assert topics.plan(topic, startingPosition="latest") == []
    reader = PulsarDataSource(topics.options(topic, startingPosition="latest")).streamReader(StructType())
    start = reader.initialOffset()
    topics.send_numbers(topic, [3])
    assert numbers(topics.read(topic, startingPosition=json.dumps(start))) == [3]


def test_a_publish_time_skips_what_is_older(topics: Topics) -> None:
    topic = topics.create()
    times = []
    for number in range(3):
        times.append(round(time.time() * 1000))
        time.sleep(0.05)
        topics.send_numbers(topic, [number])
        if number == 1:
            topics.roll_ledger(topic)
    read = [numbers(topics.read(topic, startingPosition=start)) for start in [0, *times, times[-1] + 60_000]]
    assert read == [[0, 1, 2], [0, 1, 2], [1, 2], [2], []]


def test_a_publish_time_on_a_topic_without_messages(topics: Topics) -> None:
    topic = topics.create()
    options = topics.options(topic, startingPosition=round(time.time() * 1000))
    reader = PulsarDataSource(options).streamReader(StructType())
    assert [start.partition(":")[2] for start in reader.initialOffset().values()] == ["-1"]


def test_a_publish_time_after_the_last_ledger(topics: Topics) -> None:
    topic = topics.create()
    topics.send_numbers(topic, [0])
    topics.roll_ledger(topic)
    assert topics.plan(topic, startingPosition=round(time.time() * 1000) + 60_000) == []


def test_offsets_of_some_partitions(topics: Topics) -> None:
    topic = topics.create(partitions=2)
    topics.send_numbers(f"{topic}-partition-0", range(3))
    topics.send_numbers(f"{topic}-partition-1", range(10, 12))
    start = {f"{topic}-partition-0": str(topics.entries(f"{topic}-partition-0")[1])}
    assert numbers(topics.read(topic, startingPosition=json.dumps(start))) == [2, 10, 11]


def test_offsets_made_from_rows_of_a_topic_without_partitions(topics: Topics) -> None:
    topic = topics.create()
    topics.send_numbers(topic, range(3))
    start = {f"{topic}-partition-0": str(topics.entries(topic)[1])}
    assert numbers(topics.read(topic, startingPosition=json.dumps(start))) == [2]


def test_offsets_of_a_partition_that_is_not_there_are_refused(topics: Topics) -> None:
    topic = topics.create()
    with pytest.raises(PulsarSourceError) as error:
        topics.plan(topic, startingPosition=json.dumps({f"{topic}-partition-7": "1:1"}))
    assert str(error.value) == f"startingPosition names {topic}-partition-7, which is not a partition of the topic"


def test_offsets_of_a_topic_that_is_not_read_change_nothing(topics: Topics) -> None:
    topic = topics.create()
    topics.send_numbers(topic, range(3))
    other = json.dumps({"persistent://public/default/other": "1:1"})
    assert topics.plan(topic, startingPosition=other) == topics.plan(topic) != []


def without_what_was_read(topics: Topics) -> tuple[str, str]:
    """A topic whose first ledger the broker has deleted, and the offsets of an entry in that ledger."""
    topic = topics.create()
    topics.send_numbers(topic, range(3))
    start = json.dumps({topic: str(topics.entries(topic)[1])})
    topics.delete_read_ledgers(topic)
    topics.send_numbers(topic, [3, 4])
    return topic, start


def a_batch(topics: Topics, topic: str, start: str, **options: object) -> object:
    return topics.plan(topic, startingPosition=start, **options)


def a_new_stream(topics: Topics, topic: str, start: str, **options: object) -> object:
    given = topics.options(topic, startingPosition=start, subscription="lake", **options)
    return PulsarDataSource(given).streamReader(StructType()).initialOffset()


def a_restarted_stream(topics: Topics, topic: str, start: str, **options: object) -> object:
    reader = PulsarDataSource(topics.options(topic, subscription="lake", **options)).streamReader(StructType())
    assert isinstance(reader, PulsarStreamReader)
    return reader.latestOffset(json.loads(start), reader.getDefaultReadLimit())


def a_repeated_batch(topics: Topics, topic: str, start: str, **options: object) -> object:
    reader = PulsarDataSource(topics.options(topic, subscription="lake", **options)).streamReader(StructType())
    return reader.partitions(json.loads(start), {topic: str(topics.entries(topic)[-1])})


def test_a_partition_that_disappears_after_the_target_was_chosen_is_left_out(topics: Topics) -> None:
    topic = topics.create(partitions=2)
    for partition in ("-partition-0", "-partition-1"):
        topics.send_numbers(topic + partition, [1])
    reader = PulsarStreamReader(Options.parse(topics.options(topic)))
    reader.prepareForTriggerAvailableNow()
    topics.admin("DELETE", f"{topic}-partition-1")
    last = topics.entries(f"{topic}-partition-0")[-1]
    assert reader.latestOffset({}, reader.getDefaultReadLimit()) == {f"{topic}-partition-0": str(last)}


Read = Callable[..., object]


@pytest.mark.parametrize("read", [a_batch, a_new_stream, a_restarted_stream, a_repeated_batch])
def test_what_the_broker_has_deleted_is_missed(topics: Topics, read: Read) -> None:
    topic, start = without_what_was_read(topics)
    last, first = json.loads(start)[topic], topics.entries(topic)[0]
    for _ in range(2):  # a retry is refused as well
        with pytest.raises(PulsarSourceError) as error:
            read(topics, topic, start)
        assert str(error.value) == (
            f"{topic}: the broker no longer has the ledger of {last}, the last entry read; the partition now begins "
            f"with {first}. Messages between may be lost; failOnDataLoss=false goes on"
        )
    assert read(topics, topic, start, failOnDataLoss=False)


@pytest.mark.parametrize("read", [a_batch, a_new_stream, a_restarted_stream, a_repeated_batch])
def test_a_topic_recreated_is_not_taken_for_the_old_one(topics: Topics, read: Read) -> None:
    """The new topic's positions are below those that were read, so its messages would be skipped."""
    topic = topics.create()
    (last,) = topics.send(topic, b"1")
    start = json.dumps({topic: f"{last.ledger + 1}:0"})
    with pytest.raises(PulsarSourceError) as error:
        read(topics, topic, start)
    assert str(error.value) == (
        f"{topic}: the last entry read is {last.ledger + 1}:0, but the broker's last entry is {last}: the topic "
        "was recreated. Start again with a new checkpoint and table, or set failOnDataLoss=false to skip older entries"
    )


def test_what_is_left_is_read_if_told_to(topics: Topics) -> None:
    topic, start = without_what_was_read(topics)
    assert numbers(topics.read(topic, startingPosition=start, failOnDataLoss=False)) == [3, 4]


def test_earliest_is_what_the_broker_still_has(topics: Topics) -> None:
    topic, _ = without_what_was_read(topics)
    assert numbers(topics.read(topic)) == [3, 4]


def test_the_package_stands_alone() -> None:
    """The package can be copied to another project unchanged: its modules name each other by relative imports."""
    allowed = {"cryptography", "numpy", "pulsar", "pyarrow", "pyspark", "requests"} | sys.stdlib_module_names
    for file in Path(str(bronze_pulsar.__file__)).parent.glob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Import | ast.ImportFrom):
                level = node.level if isinstance(node, ast.ImportFrom) else 0
                names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else [str(node.module)]
                for name in names if level == 0 else ():
                    assert name.split(".")[0] in allowed, f"{file.name} imports {name}"
                assert level <= 1, f"{file.name} imports from above"
