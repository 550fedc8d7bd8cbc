"""Several topics land in one table, as the oracle says, whatever becomes of some of them and wherever landing dies."""

import json
import re
from dataclasses import replace
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from pulsar_lakehouse.bronze import reach, small_backlogs
from pulsar_lakehouse.bronze.accepted_losses import accept_losses
from pulsar_lakehouse.bronze.landing import land, tell_gone
from pulsar_lakehouse.bronze.losses import clashes
from pulsar_lakehouse.bronze.partitions import CREATED
from pulsar_lakehouse.bronze.pulsar import PulsarDataSource
from pulsar_lakehouse.bronze.pulsar.admin import Held
from pulsar_lakehouse.bronze.pulsar.positions import BEGINNING, Offsets, Position
from pulsar_lakehouse.bronze.reach import Reach
from pulsar_lakehouse.bronze.small_backlogs import land_small_backlog
from pulsar_lakehouse.contracts.topics import Topic
from pulsar_lakehouse.errors import PermanentError, UnreachableError
from pulsar_lakehouse.locks import Permit
from pulsar_lakehouse.pulsar.backlog import topic_status
from pulsar_lakehouse.pulsar.endpoint import Endpoint
from pulsar_lakehouse.pulsar.topic_admin import EARLIEST
from pulsar_lakehouse.settings import Settings
from pulsar_lakehouse.tables.direct import append_batch
from pulsar_lakehouse.tables.lake import Lake
from tests import oracle_topics
from tests.bronze.broker_topics import Topics
from tests.lake import read
from tests.searching import few

ORDERS = Topic("orders", "id BIGINT NOT NULL", topic=re.compile("orders-.*"))
NAMED = replace(ORDERS, topic=("orders-eu", "orders-us"))
TABLE = ORDERS.bronze_table
EU, US = "orders-eu", "orders-us"


class Home:
    """The table, and the topics of a namespace. What is done to them, the oracle does too."""

    def __init__(self, spark: SparkSession, topics: Topics, home: Path, topic: Topic = ORDERS) -> None:
        spark.dataSource.register(PulsarDataSource)
        pulsar = topics.settings.pulsar.model_copy(update={"namespace": topics.namespace})
        self.settings: Settings = topics.settings.model_copy(update={"home": home, "pulsar": pulsar})
        self._topics, self.topic, self.lake = topics, topic, Lake(spark, self.settings)
        self.oracle, self._partitioned = oracle_topics.Topics(), dict[str, int]()
        self.reach = Reach(self.settings, topic, topics.endpoint)

    def full(self, name: str) -> str:
        return f"persistent://{self._topics.namespace}/{name}"

    def create(self, name: str, partitions: int = 0) -> None:
        self._topics.create(name, partitions)
        self._partitioned[name] = partitions
        self.oracle.create(name)

    def delete(self, name: str) -> None:
        path = "/partitions?force=true" if self._partitioned[name] else "?force=true"
        self._topics.admin("DELETE", self.full(name), path)
        self.oracle.delete(name)

    def send(self, name: str, *payloads: bytes) -> None:
        self._topics.send(self.full(name), *payloads)
        self.oracle.send(name, *payloads)

    def stream(self) -> None:
        land(self.lake, self.reach).trigger(availableNow=True).start().awaitTermination()

    def land(self) -> None:
        """As a step does: without Spark if that can, and then what follows landing."""
        if land_small_backlog(self.lake, self.reach, Permit()) is None:
            self.stream()
        self.reach.has_landed()
        tell_gone(self.lake, self.topic, self.reach.gone)
        self.oracle.land()

    def accept(self) -> None:
        accept_losses(self.lake, self.topic, self._topics.endpoint)
        self.oracle.accept()

    def rows(self) -> list[tuple[str, bytes]]:
        return sorted((row["topic"].rpartition("/")[2], row["payload"]) for row in read(self.settings, TABLE))

    def troubles(self) -> list[str]:
        return sorted(name.rpartition("/")[2] for name in self.reach.troubles)


@pytest.fixture
def home(spark: SparkSession, topics: Topics, tmp_path: Path) -> Home:
    return Home(spark, topics, tmp_path)


def test_topics_that_come_later_land_from_their_first_message(home: Home) -> None:
    home.land()
    assert home.rows() == []
    home.create(EU, partitions=2)
    home.send(EU, b"1", b"2")
    home.land()
    home.create(US)
    home.send(US, b"3")
    home.create("refunds-us")
    home.send("refunds-us", b"4")
    home.land()
    assert home.rows() == [(EU, b"1"), (EU, b"2"), (US, b"3")]
    assert topic_status(ORDERS, home.reach.endpoint, home.settings).backlog == 0


def test_one_that_disappears_is_told_once_and_stops_nothing(home: Home, capsys: pytest.CaptureFixture[str]) -> None:
    for name in (EU, US):
        home.create(name)
        home.send(name, b"1")
    home.land()
    home.delete(US)
    for payload in (b"2", b"3"):
        home.send(EU, payload)
        home.land()
    assert home.rows() == [(EU, b"1"), (EU, b"2"), (EU, b"3"), (US, b"1")]
    gone = f"orders: {home.full(US)} is not there any more: its rows stay, and messages that had not landed are lost"
    assert capsys.readouterr().err.splitlines().count(gone) == 1
    assert (home.reach.gone, home.reach.troubles) == ((home.full(US),), {})


def test_one_that_is_made_anew_stops_alone_until_that_is_accepted(home: Home) -> None:
    home.create(EU)
    home.create(US, partitions=2)
    home.send(US, b"1")
    home.land()
    home.delete(US)
    home.create(US, partitions=2)
    home.send(US, b"2")
    home.send(EU, b"3")
    home.land()
    assert home.rows() == [(EU, b"3"), (US, b"1")]
    told = home.reach.told()
    assert (f"{home.full(US)}-partition-" in told, "`lakehouse land orders --accept-loss`" in told) == (True, True)
    home.accept()
    home.land()
    assert (home.rows(), home.reach.told()) == ([(EU, b"3"), (US, b"1"), (US, b"2")], "")


def test_one_that_is_not_there_or_serves_another_pipeline_is_left_out(
    spark: SparkSession, topics: Topics, tmp_path: Path
) -> None:
    home = Home(spark, topics, tmp_path, NAMED)
    with pytest.raises(PermanentError, match=r"orders-eu: no such topic.+; .+orders-us: no such topic"):
        home.land()
    home.create(EU)
    home.send(EU, b"1")
    home.land()
    assert (home.rows(), home.troubles()) == ([(EU, b"1")], [US])
    home.create(US)
    subscription = f"/subscription/{NAMED.subscription}"
    topics.admin("PUT", home.full(US), subscription, EARLIEST)
    topics.admin("PUT", home.full(US), f"{subscription}/properties", {"lakehouse.warehouse": "another"})
    home.send(EU, b"2")
    home.land()
    assert (home.rows(), home.troubles()) == ([(EU, b"1"), (EU, b"2")], [US])
    assert "serves another warehouse" in home.reach.told()
    home.reach = Reach(home.settings, NAMED, topics.endpoint, take_over=True)
    home.land()
    assert home.troubles() == []
    home.reach = Reach(home.settings, NAMED, topics.endpoint)
    home.land()
    topics.admin("PUT", home.full(US), f"{subscription}/properties", {"lakehouse.warehouse": "another"})
    for _ in range(2):  # found after a round, and left out of the next
        home.land()
        assert home.troubles() == [US]


def test_a_batch_that_has_begun_goes_on_without_what_was_deleted_meanwhile(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in (EU, US):
        home.create(name)
        home.send(name, b"1")
    with monkeypatch.context() as patch:
        patch.setattr(small_backlogs, "append_batch", lambda *_, **__: 1 / 0)
        assert land_small_backlog(home.lake, home.reach, Permit()) is None
    home.delete(US)
    home.land()
    assert home.rows() == [(EU, b"1")]


def test_one_that_cannot_be_read_is_left_out_for_a_while(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each time for twice as long. If the others are not there either, that may pass."""
    for name in (EU, US):
        home.create(name)
        home.send(name, b"1")
    failure = f"{home.full(US)} after -1:-1 up to 5:0: no message for 120 s after -1:-1"
    home.reach.plan()
    assert not home.reach.blame("a machine that is busy")
    assert home.reach.blame(failure)
    home.land()
    assert (home.rows(), home.troubles()) == ([(EU, b"1")], [US])
    home.reach = Reach(home.settings, NAMED, home.reach.endpoint)
    clock = [0.0]
    monkeypatch.setattr(reach, "time", SimpleNamespace(monotonic=lambda: clock[0]))
    for blamed_at, left_out_at, tried_at in ((0, 59, 61), (61, 180, 182)):
        clock[0] = blamed_at
        home.reach.plan()
        assert home.reach.blame(failure)
        for clock[0], troubles in ((left_out_at, [US]), (tried_at, [])):
            home.reach.plan()
            assert home.troubles() == troubles
    assert home.reach.blame(failure)
    home.delete(EU)
    with pytest.raises(UnreachableError, match=r"no such topic.*; .*no message for 120 s"):
        home.reach.plan()
    home.reach = Reach(home.settings, ORDERS, home.reach.endpoint)
    home.land()
    assert home.rows() == [(EU, b"1"), (US, b"1")]


def test_one_topic_becomes_several_and_one_again(home: Home) -> None:
    """What has landed under the one name stays, whatever the others are called."""
    for name in (EU, US):
        home.create(name)
    for topic, payload in (
        (replace(ORDERS, topic=EU), b"1"),
        (NAMED, b"2"),
        (replace(ORDERS, topic=US), b"3"),
        (ORDERS, b"4"),
    ):
        home.topic, home.reach = topic, Reach(home.settings, topic, home.reach.endpoint)
        for name in (EU, US):
            home.send(name, payload)
        home.stream()
    assert home.rows() == [(name, payload) for name in (EU, US) for payload in (b"1", b"2", b"3", b"4")]


def held(first: int) -> Held:
    return Held([], {}, BEGINNING, first)


@pytest.mark.parametrize(
    ("first", "clashing"), [({"a": 9, "b": 10}, []), ({"a": 6, "b": 8}, ["a", "b"]), ({"a": 9, "new": 7}, ["a", "new"])]
)
def test_what_another_cluster_has_must_not_have_positions_that_have_landed(
    first: dict[str, int], clashing: list[str]
) -> None:
    """Ledger 6 may be one that `b` had here, and so may be that of a topic with a new name. Then none lands."""
    landed = Offsets({"a": Position(5, 4), "b": Position(7, 2)})
    found = clashes({name: held(each) for name, each in first.items()}, landed)
    assert [each.partition for each in found if not each.can_resume] == clashing


def test_another_cluster_is_refused_however_often_a_loss_is_accepted(home: Home) -> None:
    """It looks as if a topic had landed with other times of creation, and later messages than any has here."""
    for name in (EU, US):
        home.create(name)
        home.send(name, b"1")
    home.land()
    table = home.lake.table(TABLE)
    elsewhere = dict.fromkeys(json.loads(table.delta_property(CREATED) or "{}"), "then")
    table.set_properties({CREATED: json.dumps(elsewhere)})
    table.read().withColumn("ledger_id", F.lit(2**40)).write.format("delta").mode("append").save(table.path)
    home.lake.files.delete(home.settings.checkpoint_path(TABLE))
    home.create("orders-asia")
    home.reach = Reach(home.settings, ORDERS, home.reach.endpoint)
    for _ in range(2):
        assert accept_losses(home.lake, ORDERS, home.reach.endpoint) == []
        with pytest.raises(PermanentError, match="orders-asia-partition-0: no partition that has landed is there"):
            home.reach.plan()
    home.topic = replace(ORDERS, topic="orders-asia")
    with pytest.raises(PermanentError, match="this may be another cluster"):
        home.stream()


NAMES = st.sampled_from([EU, US, "orders-asia"])
DEEDS = st.one_of(
    *[st.tuples(st.just("send"), NAMES)] * 4,
    *[st.tuples(st.just("land"), st.sampled_from(["", "", "before", "after"]))] * 4,
    st.tuples(st.just("delete"), NAMES),
    st.tuples(st.just("accept"), st.none()),
    st.tuples(st.just("stream"), st.none()),
)
NUMBERS = count()


@given(deeds=st.lists(DEEDS, min_size=12, max_size=24))
@few(3)
def test_bronze_has_what_the_oracle_says(
    spark: SparkSession,
    settings: Settings,
    endpoint: Endpoint,
    tmp_path_factory: pytest.TempPathFactory,
    deeds: list[tuple[str, Any]],
) -> None:
    number = next(NUMBERS)
    topics = Topics(f"public/several-topics-{number}", endpoint, settings)
    home = Home(spark, topics, tmp_path_factory.mktemp(f"several-{number}"))
    for at, (deed, what) in enumerate([*deeds, ("land", ""), ("accept", None), ("land", "")]):
        do(home, deed, what, str(at).encode())
    topics.close()
    assert home.rows() == sorted(home.oracle.bronze)
    assert (home.reach.gone, home.troubles()) == (tuple(map(home.full, home.oracle.gone)), home.oracle.refused)
    assert json.loads(home.lake.table(TABLE).delta_property("lakehouse.gone") or "[]") == list(home.reach.gone)


def do(home: Home, deed: str, what: Any, payload: bytes) -> None:
    match deed:
        case "send":
            if what not in home.oracle.there:
                home.create(what, partitions=2 * (what == US))
            home.send(what, payload)
        case "delete" if what in home.oracle.there:
            home.delete(what)
        case "land":
            land_or_die(home, what)
        case "stream" if home.oracle.there.keys() - home.oracle.refused:
            home.stream()
            home.oracle.land()
        case "accept":
            home.accept()


def land_or_die(home: Home, dies: str) -> None:
    """Land; or the process is killed just before its rows are there, or just after, and nothing follows."""
    if home.oracle.there and not home.oracle.there.keys() - home.oracle.refused:
        with pytest.raises(PermanentError, match="it was recreated"):
            home.land()
        return
    if not dies:
        home.land()
        return

    def killed(*arguments: Any, **more: Any) -> None:
        home.oracle.plan()
        if dies == "after":
            append_batch(*arguments, **more)
            home.oracle.land()
        raise OSError("killed")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(small_backlogs, "append_batch", killed)
        if land_small_backlog(home.lake, home.reach, Permit()) is not None:
            home.oracle.land()
