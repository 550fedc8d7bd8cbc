import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from pulsar_lakehouse.bronze.accepted_losses import accept_losses
from pulsar_lakehouse.bronze.erasures import ERASED, ERASURES
from pulsar_lakehouse.bronze.landing import arrow_to_bronze, bronze_table, land, to_bronze
from pulsar_lakehouse.bronze.losses import LOSSES, landed_offsets, refusal
from pulsar_lakehouse.bronze.partitions import CREATED
from pulsar_lakehouse.bronze.pulsar.columns import ARROW_SCHEMA
from pulsar_lakehouse.bronze.reach import Reach
from pulsar_lakehouse.contracts.topics import Topic
from pulsar_lakehouse.errors import LakehouseError
from pulsar_lakehouse.pulsar.backlog import topic_status
from pulsar_lakehouse.pulsar.topic_admin import create_topics
from pulsar_lakehouse.settings import Settings, load_settings
from pulsar_lakehouse.tables.declared import Table
from pulsar_lakehouse.tables.lake import Lake
from tests.bronze.broker_topics import Topics

EVENTS = Topic("events", "id BIGINT NOT NULL")


class Home:
    """One topic with two partitions and its bronze table, in the test's own home."""

    def __init__(self, spark: SparkSession, topics: Topics, home: Path) -> None:
        pulsar = topics.settings.pulsar.model_copy(update={"namespace": topics.namespace})
        self.settings: Settings = topics.settings.model_copy(update={"home": home, "pulsar": pulsar})
        self._spark, self._topics = spark, topics
        create_topics([EVENTS], topics.endpoint, self.settings)
        self.partitions = [f"persistent://{topics.namespace}/events-partition-{index}" for index in (0, 1)]

    def land(self) -> list[tuple[int, int, int, bytes]]:
        """Land what is there; returns the rows of the table, sorted by position."""
        land(Lake(self._spark, self.settings), Reach(self.settings, EVENTS, self._topics.endpoint)).trigger(
            availableNow=True
        ).start().awaitTermination()
        rows = self.table().select("partition", "entry_id", "batch_index", "payload").collect()
        return sorted((row.partition, row.entry_id, row.batch_index, bytes(row.payload)) for row in rows)

    def table(self, name: str = "bronze.events") -> DataFrame:
        return Lake(self._spark, self.settings).table(name).read()

    def accept_losses(self) -> list[tuple[int, int]]:
        """Accept the losses; returns partition and number of entries of each."""
        losses = accept_losses(Lake(self._spark, self.settings), EVENTS, self._topics.endpoint)
        return [(int(loss.partition[-1]), loss.entries) for loss in losses]

    def refusal(self) -> str | None:
        return refusal(self.settings, EVENTS, self._topics.endpoint)

    def payloads(self) -> list[bytes]:
        return [payload for *_, payload in self.land()]

    def lose_checkpoint(self) -> None:
        shutil.rmtree(self.settings.checkpoint_path("bronze.events"))


@pytest.fixture
def lake(spark: SparkSession, topics: Topics, tmp_path: Path) -> Home:
    return Home(spark, topics, tmp_path)


def test_messages_land_by_the_day_they_were_published(lake: Home, topics: Topics) -> None:
    topics.send(lake.partitions[0], b"not even JSON", b"", batched=True)
    topics.send(lake.partitions[1], b'{"id":1}')
    assert lake.land() == [(0, 0, 0, b"not even JSON"), (0, 0, 1, b""), (1, 0, -1, b'{"id":1}')]
    days = lake.table().selectExpr(
        "to_date(publish_time) = publish_date AS same_day", "publish_time <= landed_at AS landed_later"
    )
    assert {tuple(row) for row in days.collect()} == {(True, True)}
    assert [path.name.split("=")[0] for path in Path(lake.settings.table_path("bronze.events")).glob("p*")] == [
        "publish_date"
    ]


def test_a_second_run_lands_what_is_new_and_tells_the_broker(lake: Home, topics: Topics) -> None:
    topics.send(lake.partitions[0], b"1")
    assert lake.land() == [(0, 0, -1, b"1")]
    topics.send(lake.partitions[0], b"2")
    assert topics.backlog(lake.partitions[0], EVENTS.subscription) == 1
    assert lake.land() == [(0, 0, -1, b"1"), (0, 1, -1, b"2")]
    assert topics.backlog(lake.partitions[0], EVENTS.subscription) == 0


def test_a_lost_checkpoint_loses_nothing_and_lands_nothing_twice(lake: Home, topics: Topics) -> None:
    topics.send(lake.partitions[0], b"1", b"2", batched=True)
    landed = lake.land()
    lake.lose_checkpoint()
    assert lake.land() == landed == [(0, 0, 0, b"1"), (0, 0, 1, b"2")]
    lake.lose_checkpoint()
    topics.send(lake.partitions[0], b"3")
    topics.send(lake.partitions[1], b"4")
    assert lake.land() == [*landed, (0, 1, -1, b"3"), (1, 0, -1, b"4")]


def test_a_start_that_fails_after_a_lost_checkpoint_changes_nothing(lake: Home, topics: Topics) -> None:
    """Spark creates the checkpoint's folders before it plans the first batch."""
    topics.send(lake.partitions[0], b"1")
    landed = lake.land()
    lake.lose_checkpoint()
    for folder in ("offsets", "commits"):
        Path(lake.settings.checkpoint_path("bronze.events"), folder).mkdir(parents=True)
    assert lake.land() == landed


def test_a_torn_checkpoint_loses_nothing_and_lands_nothing_twice(
    lake: Home, topics: Topics, capsys: pytest.CaptureFixture[str]
) -> None:
    """By itself, Spark takes batches with the same numbers for done, or with a new stream id lands them twice."""
    checkpoint, table = Path(lake.settings.checkpoint_path("bronze.events")), lake.settings.table_path("bronze.events")

    def lose(pattern: str) -> None:
        for file in checkpoint.glob(pattern):
            file.unlink()

    def lose_id_in_mid_batch() -> None:
        lose("metadata")
        lose("commits/*")

    tears: list[tuple[Callable[[], None], str]] = [
        (lambda: None, ""),
        (lambda: lose("offsets/*"), f"{checkpoint}: the last batch in offsets is -1, in commits 1"),
        (lose_id_in_mid_batch, f"{checkpoint}/metadata: lost"),
        (lambda: lose("[oc]*/*"), f"{checkpoint}: bronze.events does not hold the batches recorded there"),
        (lambda: shutil.rmtree(table), f"{checkpoint}: bronze.events does not hold the batches recorded there"),
    ]
    topics.send(lake.partitions[0], b"0")
    lake.land()
    for number, (tear, line) in enumerate(tears, 1):
        tear()
        topics.send(lake.partitions[0], str(number).encode())
        assert [payload for *_, payload in lake.land()] == [str(each).encode() for each in range(number + 1)]
        assert capsys.readouterr().err.partition(": the checkpoint")[0] == line


def test_a_lost_checkpoint_after_the_broker_deleted_what_was_landed(lake: Home, topics: Topics) -> None:
    topics.send(lake.partitions[0], b"1")
    lake.land()
    topics.delete_read_ledgers(lake.partitions[0])
    lake.lose_checkpoint()
    topics.send(lake.partitions[0], b"2")
    assert [payload for *_, payload in lake.land()] == [b"1", b"2"]


def test_what_was_skipped_and_deleted_stops_landing_until_it_is_accepted(lake: Home, topics: Topics) -> None:
    partition = lake.partitions[0]
    topics.send(partition, b"1")
    lake.land()
    assert (lake.refusal(), lake.accept_losses()) == (None, [])
    topics.send(partition, b"2", b"3")
    topics.admin("POST", partition, f"/subscription/{EVENTS.subscription}/skip_all")
    topics.delete_read_ledgers(partition)
    topics.send(partition, b"4")
    lost = "At least 2 entries between are lost"
    with pytest.raises(StreamingQueryException, match=lost):
        lake.land()
    told = lake.refusal() or ""
    assert lost in told
    assert told.endswith("; `lakehouse land events --accept-loss` writes that down and goes on")
    assert lake.accept_losses() == [(0, 2)]
    assert lake.payloads() == [b"1", b"4"]
    lake.lose_checkpoint()
    assert (lake.payloads(), lake.refusal(), lake.accept_losses()) == ([b"1", b"4"], None, [])
    assert [(row.partition, row.entries) for row in lake.table(LOSSES.name).collect()] == [(0, 2)]


def test_what_is_accepted_is_gone_on_with_though_nothing_has_landed_since(lake: Home, topics: Topics) -> None:
    partition = lake.partitions[0]
    topics.send(partition, b"1")
    lake.land()
    topics.admin("DELETE", partition, f"/subscription/{EVENTS.subscription}")
    topics.send(partition, b"2")
    topics.delete_read_ledgers(partition)
    assert lake.accept_losses() == [(0, 1)]
    assert (lake.refusal(), lake.accept_losses()) == (None, [])
    topics.send(partition, b"3")
    assert lake.payloads() == [b"1", b"3"]


def test_a_deleted_subscription_is_made_again_by_landing_alone(lake: Home, topics: Topics) -> None:
    """A subscription that `lakehouse topics create` made would hide that messages are lost."""
    partition = lake.partitions[0]
    topics.send(partition, b"1")
    lake.land()
    topics.admin("DELETE", partition, f"/subscription/{EVENTS.subscription}")
    topics.send(partition, b"2")
    create_topics([EVENTS], topics.endpoint, lake.settings)
    assert topics.admin("GET", partition, "/subscriptions") == []
    assert lake.payloads() == [b"1", b"2"]
    assert topics.backlog(partition, EVENTS.subscription) == 0
    topics.admin("DELETE", partition, f"/subscription/{EVENTS.subscription}")
    topics.send(partition, b"3")
    topics.delete_read_ledgers(partition)
    topics.send(partition, b"4")
    create_topics([EVENTS], topics.endpoint, lake.settings)
    with pytest.raises(StreamingQueryException, match="the broker no longer has the ledger of"):
        lake.land()


@pytest.mark.parametrize("whole", [True, False])
def test_a_topic_that_was_recreated_stops_landing_until_it_is_accepted(lake: Home, topics: Topics, whole: bool) -> None:
    topics.send(lake.partitions[1], b"1")
    lake.land()
    topics.send(lake.partitions[1], b"2")
    topic = lake.partitions[1].removesuffix("-partition-1")
    topics.admin("DELETE", topic if whole else lake.partitions[1], "/partitions?force=true" if whole else "?force=true")
    create_topics([EVENTS], topics.endpoint, lake.settings)
    topics.send(lake.partitions[1], b"3")
    earliest = {"ledgerId": -1, "entryId": -1, "partitionIndex": -1}
    topics.admin("PUT", topic, f"/subscription/{EVENTS.subscription}", body=earliest)  # as another client may do
    recreated = (
        "the last entry read is .+ it was recreated at .+ `lakehouse land events --accept-loss` writes that down"
    )
    for lost_checkpoint in (False, True):
        with pytest.raises(LakehouseError, match=recreated):
            lake.land()
        assert "it was recreated at" in (lake.refusal() or "")
        if not lost_checkpoint:
            lake.lose_checkpoint()
    assert lake.accept_losses() == ([(0, 0), (1, 0)] if whole else [(1, 0)])
    assert lake.payloads() == [b"1", b"3"]
    assert topics.backlog(lake.partitions[1], EVENTS.subscription) == 0


def test_a_table_that_does_not_know_its_topic_gets_to_know_it(spark: SparkSession, lake: Home, topics: Topics) -> None:
    topics.send(lake.partitions[0], b"1")
    lake.land()
    table = f"delta.`{lake.settings.table_path('bronze.events')}`"
    known = Lake(spark, lake.settings).table("bronze.events").delta_property(CREATED)
    spark.sql(f"ALTER TABLE {table} UNSET TBLPROPERTIES ('{CREATED}')")
    assert lake.payloads() == [b"1"]
    assert known == Lake(spark, lake.settings).table("bronze.events").delta_property(CREATED)
    assert known is not None
    assert list(json.loads(known)) == lake.partitions


def test_a_topic_without_partitions_lands(lake: Home, topics: Topics, spark: SparkSession) -> None:
    """A producer that starts before `lakehouse topics create` creates such a topic."""
    alone = replace(EVENTS, name="alone")
    name = f"persistent://{topics.namespace}/alone"
    topics.send(name, b"1")
    create_topics([alone], topics.endpoint, lake.settings)
    assert topic_status(alone, topics.endpoint, lake.settings).backlog == 1
    for _ in range(2):
        query = (
            land(Lake(spark, lake.settings), Reach(lake.settings, alone, topics.endpoint))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        assert topic_status(alone, topics.endpoint, lake.settings).backlog == 0
    assert [bytes(row.payload) for row in lake.table("bronze.alone").collect()] == [b"1"]
    assert refusal(lake.settings, alone, topics.endpoint) is None
    for torn in Path(lake.settings.checkpoint_path("bronze.alone"), "offsets").glob("[0-9]*"):
        torn.write_text("")
    assert refusal(lake.settings, alone, topics.endpoint) is None
    shutil.rmtree(lake.settings.checkpoint_path("bronze.alone"))
    assert refusal(lake.settings, alone, topics.endpoint) is None


def test_the_offsets_of_what_was_landed(spark: SparkSession, tmp_path: Path) -> None:
    """Entries that were erased, or accepted as lost, count like those that are there."""
    lake, own = Lake(spark, load_settings(home=tmp_path)), "persistent://public/lakehouse/events"

    def offsets() -> dict[str, str]:
        return landed_offsets(lake.settings, EVENTS).to_json()

    def append(table: Table, rows: list[tuple[object, ...]], columns: str) -> None:
        lake.create(table)
        given, stored = spark.createDataFrame(rows, columns), lake.table(table.name)
        lacking = {name: F.lit(None) for name in stored.schema.names if name not in given.columns}
        stored.append(given.withColumns(lacking).to(stored.schema))

    position = "topic STRING, partition INT, ledger_id BIGINT, entry_id BIGINT"
    lake.create(bronze_table(EVENTS))
    assert offsets() == {}
    append(bronze_table(EVENTS), [(own, 0, 5, 9), (own, 0, 12, 3), (own, 1, 7, 0), (own, 0, 12, 1)], position)
    assert offsets() == {f"{own}-partition-0": "12:3", f"{own}-partition-1": "7:0"}
    append(LOSSES, [(own, 1, 8, -1), (f"{own}2", 0, 99, 0)], position)
    erased = [(EVENTS.bronze_table, own, 2, 4, 4, -1), ("bronze.other", own, 0, 99, 0, -1)]
    append(ERASURES, [(erased,)], f"messages ARRAY<{ERASED}>")
    assert offsets() == {f"{own}-partition-0": "12:3", f"{own}-partition-1": "8:-1", f"{own}-partition-2": "4:4"}


@pytest.mark.parametrize("published", ["2026-02-28T23:59:59.999Z", "2026-03-01T00:00:00Z", None])
def test_spark_and_arrow_make_the_same_rows_of_a_message(spark: SparkSession, published: str | None) -> None:
    """The stream uses the one, and a small backlog the other."""
    read = pa.Table.from_pylist([{"publish_time": published and datetime.fromisoformat(published)}], ARROW_SCHEMA)
    stream, small = to_bronze(spark.createDataFrame(read)).toArrow(), arrow_to_bronze(read)
    added = ["landed_at", "publish_date"]
    assert stream.select(added).schema.types == small.select(added).schema.types
    assert stream.drop(["landed_at"]).to_pylist() == small.drop(["landed_at"]).to_pylist()


def test_the_table_can_only_grow() -> None:
    table = bronze_table(EVENTS)
    assert (table.name, table.partition_by) == ("bronze.events", ("publish_date",))
    assert table.properties["delta.appendOnly"] == "true"
