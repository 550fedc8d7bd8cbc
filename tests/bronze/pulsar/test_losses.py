"""What counts as lost: first by made-up answers of a broker, then by those of a real one."""

import json
from collections.abc import Callable

import pytest
from pyspark.sql.types import StructType

from pulsar_lakehouse.bronze.pulsar import PulsarDataSource
from pulsar_lakehouse.bronze.pulsar.admin import Held
from pulsar_lakehouse.bronze.pulsar.losses import find_loss
from pulsar_lakehouse.bronze.pulsar.options import PulsarSourceError
from pulsar_lakehouse.bronze.pulsar.positions import BEGINNING, Ledger, Position
from pulsar_lakehouse.bronze.pulsar.source import PulsarStreamReader
from tests.bronze.broker_topics import Topics, numbers


def held(*ledgers: Ledger, cursor: str | None, last: str, first: int | None = None, created: str = "Monday") -> Held:
    cursors = {} if cursor is None else {"lake": {"markDeletePosition": cursor}}
    oldest = min((ledger.id for ledger in ledgers), default=9) if first is None else first
    return Held(list(ledgers), cursors, Position.parse(last), oldest, created)


FIVE, SEVEN, NINE = Ledger(5, 5, 500), Ledger(7, 3, 300), Ledger(9, 10, 1_000)
LAST = Position(5, 4)
"""The last entry that was read: the end of ledger 5."""


@pytest.mark.parametrize(
    ("after", "broker"),
    [
        pytest.param(LAST, held(FIVE, SEVEN, cursor="5:4", last="7:2"), id="all acknowledged"),
        pytest.param(LAST, held(FIVE, SEVEN, cursor="5:1", last="7:2"), id="not acknowledged yet"),
        pytest.param(LAST, held(FIVE, SEVEN, cursor="7:2", last="7:2"), id="moved ahead, but all still there"),
        pytest.param(LAST, held(FIVE, SEVEN, cursor=None, last="7:2"), id="no subscription, but all still there"),
        pytest.param(LAST, held(SEVEN, cursor="5:4", last="7:2"), id="what was acknowledged was deleted"),
        pytest.param(LAST, held(SEVEN, cursor="7:-1", last="7:2"), id="the broker began a new ledger"),
        pytest.param(LAST, held(cursor="7:-1", last="5:4"), id="all was read, and deleted"),
        pytest.param(LAST, held(cursor="5:4", last="9:-1"), id="an empty ledger in its place"),
        pytest.param(Position(9, -1), held(NINE, cursor="8:-1", last="9:9"), id="nothing read yet"),
        pytest.param(Position(5, -1), held(SEVEN, cursor="5:-1", last="7:2"), id="empty ledgers were deleted"),
        pytest.param(BEGINNING, held(SEVEN, cursor="5:-1", last="7:2"), id="a new partition"),
        pytest.param(BEGINNING, held(SEVEN, cursor=None, last="7:2"), id="a new partition, without subscription"),
        pytest.param(BEGINNING, None, id="a partition that never was"),
    ],
)
def test_nothing_is_lost(after: Position, broker: Held | None) -> None:
    assert find_loss("p", after, broker, "lake", "Monday" if broker else None) is None


@pytest.mark.parametrize(
    ("after", "broker", "resume", "entries", "reason"),
    [
        (
            Position(5, 1),
            held(NINE, cursor="7:2", last="9:9"),
            Position(9, -1),
            3,
            "the subscription was moved ahead to 7:2, and the broker no longer has the ledger of 5:1, the last entry "
            "read; the partition now begins with 9:0. At least 3 entries between are lost",
        ),
        (
            LAST,
            held(NINE, cursor="9:3", last="9:9"),
            Position(9, -1),
            0,
            "the subscription was moved ahead to 9:3, and the broker no longer has the ledger of 5:4, the last entry "
            "read; the partition now begins with 9:0. Messages between may be lost",
        ),
        (
            Position(5, 1),
            held(cursor="9:-1", last="5:4"),
            Position(9, -1),
            3,
            "the broker no longer has the ledger of 5:1, the last entry read; the partition now holds nothing. "
            "At least 3 entries between are lost",
        ),
        (
            LAST,
            held(SEVEN, cursor=None, last="7:2"),
            Position(7, -1),
            0,
            "the broker no longer has the ledger of 5:4, the last entry read; the partition now begins with 7:0. "
            "Messages between may be lost",
        ),
        (
            BEGINNING,
            held(NINE, cursor="7:2", last="9:9"),
            Position(9, -1),
            3,
            "the subscription was moved ahead to 7:2, and the broker no longer has the first entries; the partition "
            "now begins with 9:0. At least 3 entries between are lost",
        ),
        (
            LAST,
            held(NINE, cursor="9:-1", last="9:9", created="Tuesday"),
            Position(9, -1),
            0,
            "the last entry read is 5:4, of the partition created at Monday; it was recreated at Tuesday, and "
            "messages not yet read are lost",
        ),
    ],
)
def test_what_is_lost(after: Position, broker: Held, resume: Position, entries: int, reason: str) -> None:
    loss = find_loss("p", after, broker, "lake", "Monday")
    assert loss is not None
    assert (loss.after, loss.resume, loss.entries, loss.reason, loss.can_resume) == (
        after,
        resume,
        entries,
        reason,
        True,
    )


@pytest.mark.parametrize(
    ("broker", "reason"),
    [
        (None, "the last entry read is 5:4, but the partition no longer exists"),
        (
            held(FIVE, cursor="5:-1", last="5:4", created="Tuesday"),
            "the last entry read is 5:4, of the partition created at Monday; it was recreated at Tuesday, and "
            "its positions overlap those already read",
        ),
        (
            held(Ledger(2, 1, 10), cursor="2:-1", last="2:0"),
            "the last entry read is 5:4, but the broker's last entry is 2:0: the topic was recreated",
        ),
    ],
)
def test_what_nothing_can_follow(broker: Held | None, reason: str) -> None:
    loss = find_loss("p", LAST, broker, "lake", "Monday")
    assert loss is not None
    assert (loss.reason, loss.can_resume, loss.exists) == (reason, False, broker is not None)


class Landed:
    """A topic with two entries that were read and acknowledged, and three unread ones."""

    def __init__(self, topics: Topics) -> None:
        self._topics = topics
        self.topic = topics.create()
        self.reader = self.restarted()
        self.start = self.reader.initialOffset()
        self.positions = topics.send(self.topic, b"1", b"2")
        self.start = self.plan()
        assert self.plan() == self.start == {self.topic: str(self.positions[-1])}
        self.positions += topics.send(self.topic, b"3", b"4", b"5")

    def restarted(self, **options: object) -> PulsarStreamReader:
        source = PulsarDataSource(self._topics.options(self.topic, subscription="lake", **options))
        reader = source.streamReader(StructType())
        assert isinstance(reader, PulsarStreamReader)
        return reader

    def plan(self, reader: PulsarStreamReader | None = None) -> dict[str, str]:
        """Where the next batch ends. Planning it acknowledges the previous batch."""
        reader = reader or self.reader
        return reader.latestOffset(self.start, reader.getDefaultReadLimit())

    def skip(self, path: str, method: str = "POST", body: object = None) -> None:
        self._topics.admin(method, self.topic, path, body=body)


@pytest.fixture
def landed(topics: Topics) -> Landed:
    return Landed(topics)


def skip_all(landed: Landed) -> None:
    landed.skip("/subscription/lake/skip_all")


def skip_some(landed: Landed) -> None:
    landed.skip("/subscription/lake/skip/3")


def reset_ahead(landed: Landed) -> None:
    last = landed.positions[-1]
    body = {"ledgerId": last.ledger, "entryId": last.entry, "partitionIndex": -1, "excluded": True}
    landed.skip("/subscription/lake/resetcursor", body=body)


def truncate(landed: Landed) -> None:
    landed.skip("/truncate", "DELETE")


Skip = Callable[[Landed], None]


@pytest.mark.parametrize("skip", [skip_all, skip_some, reset_ahead, truncate])
def test_a_backlog_that_was_skipped_is_read_while_it_is_there_and_missed_once_it_is_gone(
    topics: Topics, landed: Landed, skip: Skip
) -> None:
    skip(landed)
    assert numbers(topics.read(landed.topic, startingPosition=json.dumps(landed.start))) == [3, 4, 5]
    assert landed.plan(landed.restarted()) == {landed.topic: str(landed.positions[-1])}
    skip(landed)
    topics.delete_read_ledgers(landed.topic)
    after, last = landed.start[landed.topic], landed.positions[-1]
    for _ in range(2):
        with pytest.raises(PulsarSourceError) as error:
            landed.plan(landed.restarted())
        assert str(error.value) == (
            f"{landed.topic}: the subscription was moved ahead to {last}, and the broker no longer has the ledger of "
            f"{after}, the last entry read; the partition now holds nothing. At least 3 entries between are lost; "
            "failOnDataLoss=false goes on"
        )
    topics.send_numbers(landed.topic, [6])
    topics.roll_ledger(landed.topic)  # as a restart of the broker does: it does not hide the loss
    with pytest.raises(PulsarSourceError, match="At least 3 entries between are lost"):
        landed.plan(landed.restarted())
    assert landed.plan(landed.restarted(failOnDataLoss=False)) == {landed.topic: str(topics.entries(landed.topic)[-1])}


def test_what_was_read_may_go_whatever_becomes_of_the_ledgers(topics: Topics, landed: Landed) -> None:
    landed.start = landed.plan()
    landed.plan()
    for number in range(6, 9):
        topics.delete_read_ledgers(landed.topic)
        assert landed.plan(landed.restarted()) == landed.start
        topics.roll_ledger(landed.topic)
        topics.send_numbers(landed.topic, [number])
        start = json.dumps(landed.start)
        assert numbers(topics.read(landed.topic, startingPosition=start, subscription="lake")) == [number]
        reader = landed.restarted()
        landed.start = landed.plan(reader)
        landed.plan(reader)
    assert topics.backlog(landed.topic, "lake") == 0


def test_messages_that_were_skipped_before_any_was_read(topics: Topics) -> None:
    topic = topics.create()
    reader = PulsarDataSource(topics.options(topic, subscription="lake")).streamReader(StructType())
    start = reader.initialOffset()
    topics.send_numbers(topic, range(3))
    topics.admin("POST", topic, "/subscription/lake/skip_all")
    topics.delete_read_ledgers(topic)
    with pytest.raises(PulsarSourceError, match="At least 3 entries between are lost"):
        reader.latestOffset(start, reader.getDefaultReadLimit())


def test_a_new_stream_with_an_old_subscription_begins_with_what_is_there(topics: Topics, landed: Landed) -> None:
    skip_all(landed)
    topics.delete_read_ledgers(landed.topic)
    reader = landed.restarted()
    landed.start = reader.initialOffset()
    assert landed.plan(reader) == landed.start
    (last,) = topics.send(landed.topic, b"6")
    assert landed.plan(reader) == {landed.topic: str(last)}


def test_a_subscription_that_is_deleted_under_a_stream_is_made_again(topics: Topics, landed: Landed) -> None:
    topics.admin("DELETE", landed.topic, "/subscription/lake")
    end = landed.plan()
    assert end == {landed.topic: str(landed.positions[-1])}
    assert topics.backlog(landed.topic, "lake") == 3


def test_a_subscription_is_not_made_again_if_that_would_hide_a_loss(topics: Topics, landed: Landed) -> None:
    topics.admin("DELETE", landed.topic, "/subscription/lake")
    topics.delete_read_ledgers(landed.topic)
    topics.send_numbers(landed.topic, [6])
    for _ in range(2):
        with pytest.raises(PulsarSourceError, match="the broker no longer has the ledger of"):
            landed.plan()
    assert topics.admin("GET", landed.topic, "/subscriptions") == []


def test_a_topic_that_is_recreated_under_a_stream(topics: Topics, landed: Landed) -> None:
    topics.admin("DELETE", landed.topic, "?force=true")
    topics.create()
    topics.send_numbers(landed.topic, [6])
    topics.admin("PUT", landed.topic, "/subscription/lake", body={"ledgerId": -1, "entryId": -1, "partitionIndex": -1})
    with pytest.raises(PulsarSourceError, match=r"it was recreated at .+, and messages not yet read are lost"):
        landed.plan()


def test_a_terminated_topic_is_read_to_its_end(topics: Topics, landed: Landed) -> None:
    topics.admin("POST", landed.topic, "/terminate")
    landed.start = landed.plan(landed.restarted())
    assert landed.start == {landed.topic: str(landed.positions[-1])}
    assert landed.plan(landed.restarted()) == landed.start
