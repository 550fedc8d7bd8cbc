"""What the source asks the broker's admin API, and how it is told no; on a broker of its own that wants a token."""

import base64
import hashlib
import hmac
import json
from collections.abc import Iterator

import pytest

from bronze.pulsar.admin import Admin, EntryMetadata
from bronze.pulsar.options import NoAnswerError, Options, PulsarSourceError
from bronze.pulsar.positions import BEGINNING, Ledger, Position, Range, Span
from lakehouse import broker
from lakehouse.settings import load_settings
from tests.bronze.broker_topics import Topics, numbers

KEY = b"the key of the tests, which is long enough"


def token(role: str, key: bytes = KEY) -> str:
    """A JSON web token, as `pulsar tokens create` makes it."""

    def encode(data: bytes) -> str:
        return base64.urlsafe_b64encode(data).decode().rstrip("=")

    text = f"{encode(json.dumps({'alg': 'HS256'}).encode())}.{encode(json.dumps({'sub': role}).encode())}"
    return f"{text}.{encode(hmac.digest(key, text.encode(), hashlib.sha256))}"


AUTHENTICATION = f"""
authenticationEnabled=true
authorizationEnabled=true
authenticationProviders=org.apache.pulsar.broker.authentication.AuthenticationProviderToken
tokenSecretKey=data:;base64,{base64.b64encode(KEY).decode()}
superUserRoles=owner
brokerClientAuthenticationPlugin=org.apache.pulsar.client.impl.auth.AuthenticationToken
brokerClientAuthenticationParameters=token:{token("owner")}
"""


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Topics]:
    """Topics of a broker that knows one role, `owner`."""
    settings = load_settings(home=tmp_path_factory.mktemp("guarded"), pulsar={"token": token("owner")})
    configured = broker._configured
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(broker, "_configured", lambda *given: configured(*given) + AUTHENTICATION)
        endpoint = broker.start(settings)
    topics = Topics("public/guarded", endpoint, settings)
    yield topics
    topics.close()
    broker.stop(settings)


def test_the_right_token_reads(guarded: Topics) -> None:
    topic = guarded.create("read")
    guarded.send_numbers(topic, range(3))
    assert numbers(guarded.read(topic, token=token("owner"))) == [0, 1, 2]


@pytest.mark.parametrize(
    "wrong", [token("owner", b"another key, which is long enough as well"), token("guest"), "junk"]
)
def test_a_wrong_token_is_refused(guarded: Topics, wrong: str) -> None:
    topic = guarded.create("refused")
    with pytest.raises(PulsarSourceError, match=f"^{topic}: the broker refused the token$"):
        guarded.plan(topic, token=wrong)


def test_a_token_that_may_plan_but_not_read(guarded: Topics) -> None:
    planned = Range(guarded.create("refused"), BEGINNING, (Span(0, 0, 0, 1),))
    with pytest.raises(PulsarSourceError) as error:
        guarded.read_range(planned, token=token("guest"))
    assert str(error.value) == f"{planned}: Pulsar error: AuthorizationError"


def test_a_broker_that_is_not_there() -> None:
    urls = {"serviceUrl": "pulsar://127.0.0.1:1", "adminUrl": "http://127.0.0.1:1", "topic": "events"}
    with pytest.raises(NoAnswerError) as error:
        Admin(Options.parse(urls)).partitions("persistent://public/default/events")
    assert str(error.value) == "http://127.0.0.1:1/admin/v2: no answer from the broker: ConnectionError"


def test_partitions_of_a_topic(topics: Topics) -> None:
    alone, parted = topics.create("alone"), topics.create("parted", partitions=2)
    admin = Admin(Options.parse(topics.options(alone)))
    assert admin.partitions(alone) == [alone]
    assert admin.partitions(parted) == [f"{parted}-partition-0", f"{parted}-partition-1"]


def test_a_name_that_needs_quoting(topics: Topics) -> None:
    topic = f"persistent://{topics.namespace}/50% off? #1"
    topics.send_numbers(topic, [1])
    assert numbers(topics.read(topic)) == [1]


def test_ledgers_hold_what_is_confirmed(topics: Topics) -> None:
    topic = topics.create()
    assert topics.ledgers(topic) == []
    (first, *_) = topics.send(topic, b"a" * 100, b"b" * 100)
    topics.roll_ledger(topic)
    (closed,) = topics.ledgers(topic)
    assert (closed.id, closed.entries, closed.bytes > 200) == (first.ledger, 2, True)
    (second,) = topics.send(topic, b"c")
    assert topics.ledgers(topic) == [closed, Ledger(second.ledger, 1, topics.ledgers(topic)[1].bytes)]


def test_what_an_entry_says_of_itself(topics: Topics) -> None:
    topic = topics.create()
    one, many = *topics.send(topic, b"a"), topics.send(topic, b"a", b"b", batched=True)[0]
    admin = Admin(Options.parse(topics.options(topic)))
    plain = EntryMetadata(messages=1, chunk=0, chunks=1, uuid=None, is_marker=False)
    assert (admin.entry(topic, one), plain.is_message) == (plain, True)
    assert admin.entry(topic, many) == EntryMetadata(messages=2, chunk=0, chunks=1, uuid=None, is_marker=False)
    assert admin.entry(topic, Position(one.ledger + 1_000, 0)) is None


def test_only_the_last_chunk_is_a_message(topics: Topics) -> None:
    topic = topics.create()
    topics.send(topic, b"large" * 1_200_000, chunking_enabled=True)
    admin = Admin(Options.parse(topics.options(topic)))
    chunks = [entry for position in topics.entries(topic) if (entry := admin.entry(topic, position))]
    assert [(entry.chunk, entry.chunks, entry.is_message) for entry in chunks] == [(0, 2, False), (1, 2, True)]
    assert len({entry.uuid for entry in chunks}) == 1


def test_a_subscription_is_created_once_and_keeps_its_place(topics: Topics) -> None:
    topic = topics.create()
    entries = topics.send(topic, b"a", b"b", b"c")
    admin = Admin(Options.parse(topics.options(topic)))
    backlog = []
    admin.ensure_subscription(topic, "lake/of mine")
    backlog.append(topics.backlog(topic, "lake/of mine"))
    for entry in entries:
        admin.acknowledge(topic, "lake/of mine", entry)
        admin.ensure_subscription(topic, "lake/of mine")
        backlog.append(topics.backlog(topic, "lake/of mine"))
    assert backlog == [3, 2, 1, 0]
