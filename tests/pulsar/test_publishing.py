"""Each message is sent once, even if publishers are killed, batches are replayed differently, or brokers forget."""

import json
import os
import pickle
import signal
import subprocess
import sys
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

import psutil
import pulsar
import pytest
from pyspark.sql.types import StringType, StructField, StructType

from pulsar_lakehouse.contracts.avro_schemas import avro_record
from pulsar_lakehouse.errors import BrokerError, BusyError
from pulsar_lakehouse.local import broker
from pulsar_lakehouse.local.processes import read_state
from pulsar_lakehouse.pulsar.endpoint import Endpoint, call_admin, connect
from pulsar_lakehouse.pulsar.publishing import Last, Numbered, Publication, last_messages, send
from pulsar_lakehouse.pulsar.topic_admin import create_published
from pulsar_lakehouse.settings import Settings
from tests.lake import own_home
from tests.pulsar.test_topic_admin import CHANGELOG

TOPIC = "published"
KILLED = """
import os, pickle, signal, sys, time
from pulsar_lakehouse.pulsar.publishing import send

publication, messages, seconds = pickle.load(sys.stdin.buffer)

def until_killed():
    yield from messages
    time.sleep(seconds)
    os.kill(os.getpid(), signal.SIGKILL)

send(publication, 0, until_killed())
"""


@pytest.fixture
def publication(settings: Settings, endpoint: Endpoint, request: pytest.FixtureRequest) -> Publication:
    """A publication to an empty topic of the test's own."""
    namespace = "public/" + "".join(letter if letter.isalnum() else "-" for letter in request.node.name)
    pulsar = settings.pulsar.model_copy(update={"namespace": namespace})
    return publication_in(settings.model_copy(update={"pulsar": pulsar}), endpoint)


def publication_in(settings: Settings, endpoint: Endpoint) -> Publication:
    create_published([TOPIC], endpoint, settings)
    return Publication(
        topic=TOPIC,
        publisher="lakehouse-1",
        record="Creature",
        avro=json.dumps(avro_record("Creature", CHANGELOG.fields)),
        since=4,
        endpoint=endpoint,
        settings=settings,
    )


def numbered(count: int) -> list[Numbered]:
    return [((1 << 32) + place, str(place), b'{"id":%d}' % place) for place in range(count)]


def held(publication: Publication, index: int = 0) -> list[int]:
    """The message keys in a partition, as numbers, in order."""
    client = connect(publication.endpoint, publication.settings)
    reader = client.create_reader(publication.partition(index), pulsar.MessageId.earliest)
    keys = []
    while reader.has_message_available():
        keys.append(int(reader.read_next(10_000).partition_key()))
    client.close()
    return keys


def unload(publication: Publication) -> None:
    """Make the broker reload the topic, so that it learns about its producers only from the messages."""
    path = publication.partition(0).replace("://", "/") + "/unload"
    call_admin("PUT", path, publication.endpoint, publication.settings)


def kill_after(publication: Publication, messages: Iterable[Numbered], *, seconds: float) -> None:
    arguments = pickle.dumps((publication, list(messages), seconds))
    killed = subprocess.run([sys.executable, "-c", KILLED], input=arguments, capture_output=True, timeout=60)
    assert killed.returncode == -signal.SIGKILL, killed.stderr


@pytest.mark.parametrize("forgets", [False, True])
@pytest.mark.parametrize("kills", [[(1, 0.1)], [(999, 0.1), (1_300, 0.1), (2_500, 0.0)], [(4_000, 0.0), (7_001, 0.02)]])
def test_killed_publishers_and_replays(publication: Publication, kills: list[tuple[int, float]], forgets: bool) -> None:
    messages = numbered(8_000)
    there = []
    for count, seconds in kills:
        kill_after(publication, messages[:count], seconds=seconds)
        there.append(len(held(publication)))
        if forgets:
            unload(publication)
    assert send(publication, 0, messages) == 8_000 - there[-1]
    assert held(publication) == list(range(8_000))
    if forgets:
        unload(publication)
    assert send(publication, 0, messages) == 0
    assert held(publication) == list(range(8_000))


@pytest.mark.broker
@pytest.mark.long
def test_a_broker_that_dies_while_it_is_sent_to(settings: Settings, tmp_path: Path) -> None:
    own = own_home(settings, tmp_path)
    endpoint = broker.start(own)
    messages = numbered(60_000)

    def with_a_crash() -> Iterator[Numbered]:
        yield from messages[:30_000]
        process = psutil.Process(read_state(broker._state_file(own))["pid"])
        process.kill()
        process.wait()
        assert broker.start(own) == endpoint
        yield from messages[30_000:]

    try:
        publication = publication_in(own, endpoint)
        assert send(publication, 0, with_a_crash()) == 60_000
        assert held(publication) == list(range(60_000))
    finally:
        broker.stop(own)


def test_messages_carry_schema_key_and_sequence(publication: Publication) -> None:
    send(publication, 1, [(7, "1", b'{"id":1}'), (9, "1", None)])
    client = connect(publication.endpoint, publication.settings)
    reader = client.create_reader(publication.partition(1), pulsar.MessageId.earliest)
    messages = [reader.read_next(10_000) for _ in range(2)]
    client.close()
    assert [
        (
            message.properties(),
            message.partition_key(),
            message.has_null_value(),
            message.data(),
            message.producer_name(),
        )
        for message in messages
    ] == [
        ({"sequence": "7", "since": "4"}, "1", False, b'{"id":1}', "lakehouse-1"),
        ({"sequence": "9", "since": "4"}, "1", True, b"", "lakehouse-1"),
    ]
    path = f"schemas/{publication.settings.pulsar.namespace}/{TOPIC}/schema"
    schema = call_admin("GET", path, publication.endpoint, publication.settings).json()
    assert (schema["type"], json.loads(schema["data"])) == ("JSON", json.loads(publication.avro))
    assert last_messages(publication) == [None, Last(sequence=9, since=4)]


def test_nothing_goes_after_a_message_that_is_refused(publication: Publication) -> None:
    messages = numbered(1_000)
    messages[500] = (messages[500][0], "500", os.urandom(6_000_000))
    for _ in range(2):
        with pytest.raises(BrokerError, match="did not acknowledge a message: MessageTooBig"):
            send(publication, 0, messages)
        assert held(publication) == list(range(500))


def test_the_second_of_two_publishers_is_refused(publication: Publication) -> None:
    def send_beside() -> Iterator[Numbered]:
        with pytest.raises(BusyError, match="published-partition-0: another process is publishing to it"):
            send(publication, 0, numbered(1))
        yield from numbered(10)

    assert send(publication, 0, send_beside()) == 10
    assert held(publication) == list(range(10))


def test_what_another_has_published_is_not_added_to(publication: Publication) -> None:
    send(publication, 0, numbered(10))
    other = replace(publication, publisher="lakehouse-2")
    with pytest.raises(BrokerError, match="holds messages of lakehouse-1, which is not lakehouse-2: delete the topic"):
        send(other, 0, numbered(20))
    assert held(publication) == list(range(10))


def test_rows_of_another_version_are_not_added_to(publication: Publication) -> None:
    send(publication, 0, numbered(10))
    with pytest.raises(BrokerError, match="partition-0: another publisher has sent all rows of version 4: try again"):
        send(replace(publication, since=5), 0, numbered(20))
    assert held(publication) == list(range(10))


def test_a_topic_that_is_not_there(publication: Publication) -> None:
    with pytest.raises(BrokerError, match="elsewhere: no such topic: `lakehouse topics create`"):
        last_messages(replace(publication, topic="elsewhere"))


def test_a_schema_that_does_not_fit(publication: Publication) -> None:
    send(publication, 0, numbered(1))
    narrower = StructType([StructField("id", StringType(), nullable=False)])
    with pytest.raises(BrokerError, match="IncompatibleSchema"):
        send(replace(publication, avro=json.dumps(avro_record("Creature", narrower))), 0, numbered(2))
