import time
from dataclasses import replace

import pulsar
import pytest

from pulsar_lakehouse.contracts.topics import Topic
from pulsar_lakehouse.errors import BrokerError, ConfigurationError
from pulsar_lakehouse.pulsar.backlog import topic_status
from pulsar_lakehouse.pulsar.endpoint import Endpoint, call_admin, connect
from pulsar_lakehouse.pulsar.produce import NO_SCHEMA, Message, MessageSchema, produce
from pulsar_lakehouse.pulsar.topic_admin import create_topics
from pulsar_lakehouse.settings import Settings

COUNTERS = Topic("counters", "id BIGINT NOT NULL")
FIRST_VERSION, NO_VERSION = "\0" * 8, ""
MESSAGES = [
    Message("1", b'{"id":1}', 1_000),
    Message("1", None, 2_000),
    Message("2", b'{"id":"two"}', 3_000, schema=NO_SCHEMA),
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
        3_000: ("2", False, b'{"id":"two"}', NO_VERSION),
        4_000: ("2", False, b'{"id":2}', FIRST_VERSION),
    }


def test_messages_are_sent_with_the_schemas_that_they_name(endpoint: Endpoint, empty: Settings) -> None:
    """Properties of a schema are registered, too. The topic's own schema has version 0."""
    with_size = COUNTERS.pulsar_schema().replace(
        '"fields": [', '"fields": [{"name": "size", "type": ["null", "int"], "default": null}, '
    )
    later = MessageSchema("JSON", with_size)
    owned = MessageSchema("JSON", with_size.replace("size", "width"), (("owner", "me"),))
    messages = [
        Message("1", b'{"id":1}', 1_000, {"sent-by": "me"}),
        Message("1", b'{"id":1,"size":2}', 2_000, schema=later),
        Message("1", b'{"id":1,"width":2}', 3_000, schema=owned),
    ]
    produce([(COUNTERS, messages)], endpoint, empty)
    arrived = {message.event_timestamp(): message for message in received(3, endpoint, empty)}
    assert {time: (each.properties(), ord(each.schema_version()[-1])) for time, each in arrived.items()} == {
        1_000: ({"sent-by": "me"}, 0),
        2_000: ({}, 1),
        3_000: ({}, 2),
    }
    found = call_admin("GET", f"schemas/{empty.pulsar.namespace}/counters/schema", endpoint, empty).json()
    assert (found["version"], found["properties"]) == (2, {"owner": "me"})


def test_a_schema_that_the_client_can_not_send_is_named(endpoint: Endpoint, empty: Settings) -> None:
    schema = MessageSchema("KEY_VALUE", '{"key": "", "value": ""}')
    with pytest.raises(ConfigurationError, match=r"^schema: type: KEY_VALUE: this client can't send it"):
        produce([(COUNTERS, [Message("1", b"hello", 1_000, schema=schema)])], endpoint, empty)


def test_a_schema_that_the_broker_refuses_is_named(endpoint: Endpoint, empty: Settings) -> None:
    schema = MessageSchema("STRING")
    with pytest.raises(BrokerError, match=r"^counters: the broker refuses the schema STRING"):
        produce([(COUNTERS, [Message("1", b"hello", 1_000, schema=schema)])], endpoint, empty)


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
