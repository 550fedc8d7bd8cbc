import time
from dataclasses import replace

import pulsar
import pytest

from pulsar_lakehouse.contracts.topics import Topic
from pulsar_lakehouse.errors import BrokerError
from pulsar_lakehouse.pulsar.backlog import topic_status
from pulsar_lakehouse.pulsar.endpoint import Endpoint, call_admin, connect
from pulsar_lakehouse.pulsar.produce import Message, produce
from pulsar_lakehouse.pulsar.topic_admin import create_topics
from pulsar_lakehouse.settings import Settings

COUNTERS = Topic("counters", "id BIGINT NOT NULL")
FIRST_VERSION, NO_SCHEMA = "\0" * 8, ""
MESSAGES = [
    Message("1", b'{"id":1}', 1_000),
    Message("1", None, 2_000),
    Message("2", b'{"id":"two"}', 3_000, broken=True),
    Message("2", b'{"id":2}', 4_000),
]


@pytest.fixture
def empty(settings: Settings, endpoint: Endpoint, request: pytest.FixtureRequest) -> Settings:
    """Settings with the test's own namespace, in which the topic is created."""
    namespace = f"public/{request.node.name}"
    own = settings.model_copy(update={"pulsar": settings.pulsar.model_copy(update={"namespace": namespace})})
    create_topics([COUNTERS], endpoint, own)
    return own


def received(count: int, endpoint: Endpoint, settings: Settings) -> list[pulsar.Message]:
    client = connect(endpoint, settings)
    consumer = client.subscribe(f"{settings.pulsar.namespace}/counters", COUNTERS.subscription)
    messages = [consumer.receive(10_000) for _ in range(count)]
    client.close()
    return messages


def test_messages_arrive_as_they_are(endpoint: Endpoint, empty: Settings) -> None:
    assert produce([(COUNTERS, MESSAGES)], endpoint, empty) == {"counters": 4}
    arrived = {message.event_timestamp(): message for message in received(4, endpoint, empty)}
    assert {
        event_time: (message.partition_key(), message.has_null_value(), message.data(), message.schema_version())
        for event_time, message in arrived.items()
    } == {
        1_000: ("1", False, b'{"id":1}', FIRST_VERSION),
        2_000: ("1", True, b"", FIRST_VERSION),
        3_000: ("2", False, b'{"id":"two"}', NO_SCHEMA),
        4_000: ("2", False, b'{"id":2}', FIRST_VERSION),
    }


@pytest.mark.parametrize("own", ["Counters-v1", "DB.größe 50%", "persistent://public/lakehouse/Counters"])
def test_a_topic_of_another_name_is_sent_to_and_counted(endpoint: Endpoint, settings: Settings, own: str) -> None:
    topic = replace(COUNTERS, topic=own)
    create_topics([topic], endpoint, settings)
    assert produce([(topic, MESSAGES)], endpoint, settings) == {"counters": 4}
    found = topic_status(topic, endpoint, settings)
    assert (found.name, found.messages, found.backlog > 0) == ("counters", 4, True)


def test_a_topic_that_is_not_there_is_named(endpoint: Endpoint, settings: Settings) -> None:
    nowhere = settings.model_copy(update={"pulsar": settings.pulsar.model_copy(update={"namespace": "public/nowhere"})})
    with pytest.raises(BrokerError) as refused:
        produce([(COUNTERS, MESSAGES)], endpoint, nowhere)
    assert str(refused.value) == "counters: no such topic: `lakehouse topics create` makes the declared ones"


def test_the_registered_schema_is_not_evolved(endpoint: Endpoint, empty: Settings) -> None:
    produce([(COUNTERS, MESSAGES)], endpoint, empty)
    path = f"schemas/{empty.pulsar.namespace}/counters/schema"
    assert call_admin("GET", path, endpoint, empty).json()["version"] == 0


def test_a_key_stays_on_its_partition(endpoint: Endpoint, empty: Settings) -> None:
    messages = [Message(str(number % 10), b'{"id":1}', 1) for number in range(200)]
    produce([(COUNTERS, messages[:100]), (COUNTERS, messages[100:])], endpoint, empty)
    places = {(message.partition_key(), message.topic_name()) for message in received(200, endpoint, empty)}
    assert len(places) == 10
    assert len({topic for _, topic in places}) == 2


def test_a_message_too_large_is_counted_and_named(endpoint: Endpoint, empty: Settings) -> None:
    messages = [*MESSAGES, Message("3", b"x" * 6_000_000, 5_000)]
    with pytest.raises(BrokerError, match=r"^counters: not all 5 messages were acknowledged: 1 MessageTooBig$"):
        produce([(COUNTERS, messages)], endpoint, empty)


def test_a_rate_is_kept(endpoint: Endpoint, empty: Settings) -> None:
    messages = [Message("1", b'{"id":1}', 1)] * 500
    started = time.monotonic()
    produce([(COUNTERS, messages)], endpoint, empty, rate=500)
    assert 0.9 < time.monotonic() - started < 3
