"""Messages come once through a network that fails and heals; `make failing-network` lets far more of it fail."""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from threading import Timer
from typing import TypeVar

import pytest

from pulsar_lakehouse.bronze.pulsar.options import NoAnswerError
from pulsar_lakehouse.errors import BrokerError
from pulsar_lakehouse.local.processes import HOST
from pulsar_lakehouse.pulsar import publishing
from pulsar_lakehouse.pulsar.endpoint import Endpoint
from pulsar_lakehouse.pulsar.publishing import Numbered, send
from pulsar_lakehouse.settings import Settings
from pulsar_lakehouse.storage import said_once
from tests.bronze.broker_topics import Topics, numbers
from tests.network.proxy import Fault, Proxy, proxied
from tests.network.run import distant_broker, with_ports
from tests.pulsar.test_publishing import held, numbered, publication_in
from tests.s3 import Server, in_store

pytestmark = pytest.mark.long

FAILS = 1.0
"""Seconds after which the network heals."""
T = TypeVar("T")


@dataclass(frozen=True)
class Distance:
    settings: Settings
    proxies: Mapping[str, Proxy]
    inside: Endpoint
    outside: Endpoint

    @contextmanager
    def failing(self, fault: Fault) -> Iterator[None]:
        with ExitStack() as stack:
            for proxy in self.proxies.values():
                stack.enter_context(failing(proxy, fault))
            yield


@contextmanager
def failing(proxy: Proxy, fault: Fault) -> Iterator[None]:
    """The network has the fault from the beginning of the block, and has healed at its end."""
    proxy.lost = 0
    proxy.strike([fault])
    healing = Timer(FAILS, proxy.heal)
    healing.start()
    try:
        yield
    finally:
        healing.join()


@pytest.fixture(scope="module")
def distance(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Distance]:
    settings = with_ports(tmp_path_factory.mktemp("distant"))
    with distant_broker(settings, 1) as proxies:
        inside, outside = (
            Endpoint(service_url=f"pulsar://{HOST}:{service}", admin_url=f"http://{HOST}:{admin}")
            for service, admin in (
                (settings.pulsar.broker_port, settings.pulsar.web_port),
                (proxies["broker"].port, proxies["admin"].port),
            )
        )
        yield Distance(settings, proxies, inside, outside)


def until_done(do: Callable[[], T], failure: type[Exception]) -> T:
    """What it gives at last. Until then, it fails in one way, and says where."""
    for _ in range(20):
        try:
            return do()
        except failure as error:
            told = str(error)
        assert HOST in told or "persistent://" in told
        time.sleep(FAILS / 10)
    return do()


@pytest.mark.broker
@pytest.mark.parametrize("fault", Fault)
def test_each_message_is_read_once(distance: Distance, fault: Fault) -> None:
    topics = Topics(f"public/read-{fault.name.lower()}", distance.inside, distance.settings)
    topic = topics.create()
    topics.send_numbers(topic, range(3_000), batch=100)
    topics.close()
    there = Topics(topics.namespace, distance.outside, distance.settings)
    there.close()
    with distance.failing(fault):
        found = until_done(lambda: there.read(topic, listenerName="outside", readTimeout=3), NoAnswerError)
    assert numbers(found) == [*range(3_000)]


@pytest.mark.broker
@pytest.mark.parametrize("fault", Fault)
def test_each_message_is_published_once(distance: Distance, fault: Fault) -> None:
    pulsar = distance.settings.pulsar.model_copy(
        update={"namespace": f"public/sent-{fault.name.lower()}", "listener_name": "outside"}
    )
    own = distance.settings.model_copy(update={"pulsar": pulsar})
    publication = replace(publication_in(own, distance.inside), endpoint=distance.outside)
    with distance.failing(fault):
        until_done(lambda: send(publication, 0, numbered(3_000)), BrokerError)
    inside = own.model_copy(update={"pulsar": pulsar.model_copy(update={"listener_name": None})})
    assert held(replace(publication, endpoint=distance.inside, settings=inside)) == [*range(3_000)]


@pytest.mark.broker
def test_publishing_to_a_connection_that_is_lost_ends(distance: Distance, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(publishing, "ACKNOWLEDGED_WITHIN", 2.0)
    monkeypatch.setattr("tests.network.proxy.AFTER", (0,))  # acknowledgements are too few bytes for a later fault
    pulsar = distance.settings.pulsar.model_copy(update={"namespace": "public/lost", "listener_name": "outside"})
    own = distance.settings.model_copy(update={"pulsar": pulsar})
    publication = replace(publication_in(own, distance.inside), endpoint=distance.outside)
    proxy = distance.proxies["broker"]

    def messages() -> Iterator[Numbered]:
        yield from numbered(100)
        proxy.lost = 1
        proxy.strike([Fault.UNANSWERED])
        yield from numbered(200)[100:]

    began = time.monotonic()
    with pytest.raises(BrokerError, match="no acknowledgement in 2 s"):
        send(publication, 0, messages())
    proxy.heal()
    assert time.monotonic() - began < 60


@pytest.mark.s3
def test_what_is_said_once_stays_so(settings: Settings, store: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """The answer of the write that said it may be lost."""
    monkeypatch.setattr("pulsar_lakehouse.storage.TIMEOUT", "2s")
    with proxied(store.port) as proxy:
        own = in_store(settings, proxy.url, "said")
        for number, fault in enumerate(Fault):
            with failing(proxy, fault):
                said = until_done(lambda: said_once(own, f"{number}", "first"), Exception)  # noqa: B023
            assert (said, said_once(own, f"{number}", "second")) == ("first", "first")
