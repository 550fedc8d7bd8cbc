"""A small backlog lands without Spark as the next batch of the stream, whatever fails in between."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from pulsar_lakehouse.bronze.landing import land
from pulsar_lakehouse.bronze.pulsar import PulsarDataSource
from pulsar_lakehouse.bronze.pulsar.options import NoAnswerError
from pulsar_lakehouse.bronze.reach import Reach
from pulsar_lakehouse.bronze.small_backlogs import land_small_backlog
from pulsar_lakehouse.locks import Permit
from pulsar_lakehouse.pulsar.topic_admin import create_topics
from pulsar_lakehouse.settings import Settings
from pulsar_lakehouse.tables.declared import commit_file
from pulsar_lakehouse.tables.lake import Lake
from tests.bronze.broker_topics import Topics
from tests.bronze.test_landing import EVENTS
from tests.model.explorer import worlds_after
from tests.model.protocol import Scope
from tests.model.recorded import shown, steps_of_landing
from tests.model.test_model import model_of

TABLE = EVENTS.bronze_table


class Home:
    """A topic with two partitions, and its table."""

    def __init__(self, spark: SparkSession, topics: Topics, home: Path, *, alone: bool = False) -> None:
        spark.dataSource.register(PulsarDataSource)
        self.permit = Permit()
        pulsar = topics.settings.pulsar.model_copy(update={"namespace": topics.namespace})
        self.settings: Settings = topics.settings.model_copy(update={"home": home, "pulsar": pulsar})
        self._spark, self.topics = spark, topics
        self.partitions = (
            [topics.create()] if alone else [topics.create(partitions=2) + f"-partition-{n}" for n in "01"]
        )
        create_topics([EVENTS], topics.endpoint, self.settings)

    def send(self, *payloads: bytes, partition: int = 0) -> None:
        self.topics.send(self.partitions[partition], *payloads)

    def stream(self) -> None:
        land(Lake(self._spark, self.settings), Reach(self.settings, EVENTS, self.topics.endpoint)).trigger(
            availableNow=True
        ).start().awaitTermination()

    def land(self) -> int | None:
        return land_small_backlog(
            Lake(self._spark, self.settings), Reach(self.settings, EVENTS, self.topics.endpoint), self.permit
        )

    @property
    def log(self) -> Path:
        return Path(self.settings.table_path(TABLE), commit_file(Lake(self._spark, self.settings).table(TABLE).version))

    def alter(self, change: str) -> None:
        self._spark.sql(f"ALTER TABLE delta.`{self.settings.table_path(TABLE)}` {change}")

    def payloads(self) -> list[bytes]:
        rows = Lake(self._spark, self.settings).table(TABLE).read().select("payload").collect()
        return sorted(bytes(row.payload) for row in rows)

    def checkpoint(self, log: str) -> list[int]:
        files = Path(self.settings.checkpoint_path(TABLE), log).glob("[0-9]*")
        return sorted(int(file.name) for file in files)


@pytest.fixture
def lake(spark: SparkSession, topics: Topics, tmp_path: Path) -> Home:
    """Its stream has landed a message, `0`."""
    lake = Home(spark, topics, tmp_path)
    lake.send(b"0")
    lake.stream()
    return lake


def test_it_and_the_stream_go_on_after_each_other(lake: Home, capsys: pytest.CaptureFixture[str]) -> None:
    lake.send(b"1", partition=1)
    assert (lake.land(), lake.land()) == (1, 0)
    assert lake.topics.backlog(lake.partitions[1], EVENTS.subscription) == 0
    lake.send(b"2")
    lake.stream()
    lake.send(b"3", b"4")
    assert (lake.land(), lake.payloads()) == (2, [b"0", b"1", b"2", b"3", b"4"])
    lake.stream()
    assert lake.payloads() == [b"0", b"1", b"2", b"3", b"4"]
    assert lake.checkpoint("offsets") == lake.checkpoint("commits") == [0, 1, 2, 3]
    assert "the checkpoint" not in capsys.readouterr().err
    steps = steps_of_landing(lake.settings, TABLE)
    assert steps == ["writes offsets", "commits to bronze", "writes commits"] * 4
    scope = Scope(messages=4, writers=("A",), commands=("land",), has_engine=False)
    assert worlds_after(model_of(scope), steps, shows=shown)


def test_it_begins_what_the_stream_goes_on_with(
    spark: SparkSession, topics: Topics, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lake = Home(spark, topics, tmp_path)
    lake.send(b"0", b"1")
    assert (lake.land(), lake.land(), lake.payloads()) == (2, 0, [b"0", b"1"])
    lake.send(b"2", partition=1)
    lake.stream()
    lake.send(b"3", partition=1)
    assert (lake.land(), lake.payloads()) == (1, [b"0", b"1", b"2", b"3"])
    assert lake.checkpoint("offsets") == lake.checkpoint("commits") == [0, 1, 2]
    assert "the checkpoint" not in capsys.readouterr().err


@pytest.mark.parametrize("fails", ["begin", "append_batch"])
def test_what_fails_at_its_beginning_lands_once(
    spark: SparkSession, topics: Topics, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails: str
) -> None:
    lake = Home(spark, topics, tmp_path)
    lake.send(b"0")
    with monkeypatch.context() as patch:
        patch.setattr(f"pulsar_lakehouse.bronze.small_backlogs.{fails}", lambda *_, **__: 1 / 0)
        assert lake.land() is None
    lake.send(b"1")
    assert lake.land() is None
    lake.stream()
    lake.send(b"2")
    assert (lake.land(), lake.payloads()) == (1, [b"0", b"1", b"2"])


def test_its_rows_are_those_of_the_source(lake: Home, spark: SparkSession) -> None:
    topic = lake.partitions[0].removesuffix("-partition-0")
    producer = lake.topics.client.create_producer(topic)
    producer.send(b'{"id": 1}', partition_key="a", properties={"from": "web", "to": ""}, event_timestamp=1)
    producer.send(None, partition_key="b")
    producer.close()
    lake.topics.send(lake.partitions[1], b"1", b"2", batched=True)
    assert lake.land() == 4
    found = Lake(spark, lake.settings).table(TABLE).read()
    assert {tuple(row) for row in found.selectExpr("publish_date = to_date(publish_time)").collect()} == {(True,)}
    source = spark.read.format("pulsar").options(**lake.topics.options(topic)).load()
    landed = found.select(source.columns)
    assert landed.schema == source.schema
    assert sorted(map(str, landed.collect())) == sorted(map(str, source.collect()))


def test_what_it_has_begun_the_stream_ends(lake: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    lake.send(b"1")
    with monkeypatch.context() as patch:
        patch.setattr("pulsar_lakehouse.bronze.small_backlogs.append_batch", lambda *_, **__: 1 / 0)
        assert lake.land() is None
    assert (lake.checkpoint("offsets"), lake.checkpoint("commits"), lake.payloads()) == ([0, 1], [0], [b"0"])
    lake.send(b"2")
    assert lake.land() is None
    lake.stream()
    assert lake.payloads() == [b"0", b"1", b"2"]


def test_what_it_reads_after_its_permit_it_does_not_land(lake: Home) -> None:
    lake.send(b"1")
    lake.permit.withdraw()
    assert (lake.land(), lake.checkpoint("offsets")) == (None, [0])
    lake.stream()
    assert lake.payloads() == [b"0", b"1"]


def test_what_is_landed_counts_though_the_broker_does_not_hear_of_it(
    lake: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise NoAnswerError("the broker has gone")

    lake.send(b"1")
    with monkeypatch.context() as patch:
        patch.setattr("pulsar_lakehouse.bronze.small_backlogs.acknowledge", refuse)
        assert lake.land() == 1
    assert (lake.land(), lake.topics.backlog(lake.partitions[0], EVENTS.subscription)) == (0, 0)


def test_an_error_of_its_own_is_told(
    lake: Home, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("pulsar_lakehouse.bronze.small_backlogs.arrow_to_bronze", lambda _: 1 / 0)
    lake.send(b"1")
    assert lake.land() is None
    told = "events: Spark lands what this process could not: ZeroDivisionError: division by zero"
    assert told in capsys.readouterr().err


def test_a_topic_without_partitions(spark: SparkSession, topics: Topics, tmp_path: Path) -> None:
    lake = Home(spark, topics, tmp_path, alone=True)
    for number in range(3):
        lake.send(str(number).encode())
        assert lake.land() == 1
    lake.send(b"3")
    lake.stream()
    assert lake.payloads() == [b"0", b"1", b"2", b"3"]


def test_a_large_message_in_chunks(lake: Home) -> None:
    large = os.urandom(2**20 * 6)
    lake.topics.send(lake.partitions[0], large, chunking_enabled=True)
    lake.send(b"1")
    assert (lake.land(), lake.payloads()) == (2, sorted([b"0", b"1", large]))


def test_rows_that_it_could_not_note_are_not_landed_twice(lake: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    lake.send(b"1")
    assert lake.land() == 1
    for file in Path(lake.settings.checkpoint_path(TABLE), "commits").glob("*1*"):  # as if killed before it
        file.unlink()
    lake.send(b"2")
    assert lake.land() is None
    lake.stream()
    lake.send(b"3")
    assert (lake.land(), lake.payloads()) == (1, [b"0", b"1", b"2", b"3"])


def test_many_of_its_batches_in_a_row(
    lake: Home, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The table's log has checkpoints by then, which know the stream's last batch, too."""
    monkeypatch.setattr("pulsar_lakehouse.checkpoints.batches.RETAINED", 5)
    for _ in range(25):
        lake.send(b"1")
        assert lake.land() == 1
    assert lake.checkpoint("offsets") == lake.checkpoint("commits") == [21, 22, 23, 24, 25]
    assert Path(lake.settings.table_path(TABLE), "_delta_log/_last_checkpoint").exists()
    lake.send(b"2")
    lake.stream()
    assert lake.payloads() == [b"0", *[b"1"] * 25, b"2"]
    assert "the checkpoint" not in capsys.readouterr().err


def lose(*files: str) -> Callable[[Home], None]:
    def lose_them(lake: Home) -> None:
        for each in files:
            for file in Path(lake.settings.checkpoint_path(TABLE)).glob(each):
                file.unlink()

    return lose_them


def tear(lake: Home) -> None:
    Path(lake.settings.checkpoint_path(TABLE), "offsets/0").write_text("v1\n{}\n{")


def tear_last_commit(lake: Home) -> None:
    """One that is no batch."""
    lake.alter("SET TBLPROPERTIES ('note' = 'x')")
    lake.log.write_text("")


def recreate_partition(lake: Home) -> None:
    lake.topics.admin("DELETE", lake.partitions[0], "?force=true")
    lake.topics.create("events-partition-0")


@pytest.mark.parametrize(
    "happens",
    [
        pytest.param(lambda lake: shutil.rmtree(lake.settings.checkpoint_path(TABLE)), id="no checkpoint"),
        pytest.param(lose("metadata"), id="no id"),
        pytest.param(lose("commits/0"), id="a batch without an end"),
        pytest.param(tear, id="a torn batch"),
        pytest.param(lambda lake: shutil.rmtree(lake.settings.table_path(TABLE)), id="no table"),
        pytest.param(tear_last_commit, id="a torn commit"),
        pytest.param(lambda lake: lake.alter("UNSET TBLPROPERTIES ('delta.appendOnly')"), id="a property is missing"),
        pytest.param(lambda lake: lake.alter("ADD COLUMN other INT"), id="another column"),
        pytest.param(recreate_partition, id="a partition was recreated"),
        pytest.param(lambda lake: lake.topics.grow(lake.partitions[0][: -len("-partition-0")], 3), id="one more"),
        pytest.param(
            lambda lake: lake.topics.admin("DELETE", lake.partitions[0], "?force=true"), id="a partition is gone"
        ),
    ],
)
def test_it_leaves_to_the_stream(lake: Home, happens: Callable[[Home], None]) -> None:
    lake.send(b"1", partition=1)
    happens(lake)
    begun = lake.checkpoint("offsets")
    assert (lake.land(), lake.checkpoint("offsets")) == (None, begun)


def test_a_deleted_subscription_is_made_again(lake: Home) -> None:
    lake.topics.admin("DELETE", lake.partitions[0], f"/subscription/{EVENTS.subscription}")
    lake.send(b"1")
    assert lake.land() == 1
    assert lake.topics.backlog(lake.partitions[0], EVENTS.subscription) == 0


@pytest.mark.parametrize("limit", ["BACKLOG_BYTES", "BACKLOG_MEMORY"])
def test_it_leaves_a_large_backlog_to_the_stream(lake: Home, monkeypatch: pytest.MonkeyPatch, limit: str) -> None:
    """The first limit is for what the broker tells of its size, the second one for its messages."""
    monkeypatch.setattr(f"pulsar_lakehouse.bronze.small_backlogs.{limit}", 1)
    lake.send(b"1", b"2")
    assert lake.land() is None
    lake.stream()
    assert lake.payloads() == [b"0", b"1", b"2"]
