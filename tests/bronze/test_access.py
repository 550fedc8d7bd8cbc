"""Topics of a broker as companies run it: each role has no more rights than docs/access.md says it needs."""

import json
import pickle
import re
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pulsar
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.streaming.datasource import ReadAllAvailable

from pulsar_lakehouse.bronze.landing import land
from pulsar_lakehouse.bronze.partitions import source_options
from pulsar_lakehouse.bronze.pulsar import reading
from pulsar_lakehouse.bronze.pulsar.options import Cluster, Options
from pulsar_lakehouse.bronze.pulsar.planning import Plan
from pulsar_lakehouse.bronze.pulsar.reading import read_range
from pulsar_lakehouse.bronze.pulsar.source import PulsarStreamReader
from pulsar_lakehouse.bronze.pulsar.subscription import acknowledge, ensure_subscriptions
from pulsar_lakehouse.bronze.reach import Reach
from pulsar_lakehouse.bronze.warehouse_claims import claim_subscription
from pulsar_lakehouse.contracts.topics import Topic
from pulsar_lakehouse.errors import BrokerError, RefusedError
from pulsar_lakehouse.local import broker
from pulsar_lakehouse.local.processes import free_port
from pulsar_lakehouse.pulsar.backlog import topic_status
from pulsar_lakehouse.pulsar.endpoint import Endpoint, call_admin, connect
from pulsar_lakehouse.pulsar.produce import Message, produce
from pulsar_lakehouse.pulsar.publishing import Numbered, Publication, count_partitions, last_messages, send
from pulsar_lakehouse.pulsar.topic_admin import create_published, create_topics
from pulsar_lakehouse.pulsar.topic_contents import contents_of_topics
from pulsar_lakehouse.settings import Settings
from pulsar_lakehouse.tables.lake import Lake
from tests.bronze.broker_topics import Topics, payloads
from tests.forwarding import http_proxy, pulsar_proxy
from tests.guarded import Encrypted, encrypted_ports, guarded_broker
from tests.issuer import Issuer, key_file, running_issuer
from tests.tokens import token

EVENTS = Topic("events", "id BIGINT NOT NULL")
TOKEN_LIFE = 3.0
"""Seconds."""
CREATOR, LANDER, PUBLISHER, PROXY = "creator", "lander", "publisher", "proxy"


class Company:
    """A tenant whose administrator is the role `creator`. Each test has a namespace of its own."""

    def __init__(self, topics: Topics, encrypted: Encrypted, home: Path) -> None:
        self.endpoint, self.encrypted, self.home = topics.endpoint, encrypted, home
        self._owner = topics.settings
        allowed = {"adminRoles": [CREATOR], "allowedClusters": ["standalone"]}
        call_admin("PUT", "tenants/acme", self.endpoint, self._owner, body=allowed)

    def settings(self, namespace: str, **credentials: Any) -> Settings:
        pulsar = self._owner.pulsar.model_copy(update={"namespace": namespace, "token": None} | credentials)
        return self._owner.model_copy(update={"home": self.home, "pulsar": type(pulsar)(**pulsar.model_dump())})

    def as_role(self, role: str, namespace: str) -> Settings:
        return self.settings(namespace, token=token(role))

    def grant(self, role: str, namespace: str, *actions: str, topic: str | None = None) -> None:
        place = f"persistent/{namespace}/{topic}" if topic else f"namespaces/{namespace}"
        creator = self.as_role(CREATOR, namespace)
        call_admin("POST", f"{place}/permissions/{role}", self.endpoint, creator, body=actions)

    def send(self, namespace: str, *texts: str) -> None:
        client = connect(self.endpoint, self.as_role(CREATOR, namespace))
        producer = client.create_producer(f"persistent://{namespace}/events")
        for text in texts:
            producer.send(text.encode())
        client.close()


@pytest.fixture(scope="module")
def company(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Company]:
    encrypted, ports = encrypted_ports(tmp_path_factory.mktemp("certificates")), [free_port() for _ in range(2)]
    plain, external = (f"pulsar://127.0.0.1:{port}" for port in ports)
    configuration = f"""
authenticationRefreshCheckSeconds=1
proxyRoles={PROXY}
advertisedAddress=
advertisedListeners=internal:{plain},internal:{encrypted.endpoint.service_url},external:{external}
internalListenerName=internal
"""
    home = tmp_path_factory.mktemp("guarded")
    with guarded_broker(home, encrypted, configuration, port=ports[0]) as topics:
        yield Company(topics, encrypted, home)


@pytest.fixture
def namespace(company: Company, request: pytest.FixtureRequest) -> str:
    """A namespace with a topic, of which `lander` may consume all."""
    name = "acme/" + "".join(letter if letter.isalnum() else "-" for letter in request.node.name)
    create_topics([EVENTS], company.endpoint, company.as_role(CREATOR, name))
    company.grant(LANDER, name, "consume")
    return name


@pytest.fixture
def issuer() -> Iterator[Issuer]:
    with running_issuer(Issuer(lifetime=TOKEN_LIFE)) as issuer:
        yield issuer


@contextmanager
def renewed(path: Path, role: str) -> Iterator[None]:
    """A file whose token is renewed before it expires."""
    stopped = Event()

    def renew() -> None:
        while not stopped.wait(TOKEN_LIFE / 4):
            path.write_text(token(role, seconds=TOKEN_LIFE))

    path.write_text(token(role, seconds=TOKEN_LIFE))
    thread = Thread(target=renew)
    thread.start()
    yield
    stopped.set()
    thread.join()


def land_all(settings: Settings, endpoint: Endpoint) -> list[str]:
    """What would land: by all the calls of `lakehouse land`, but without Spark."""
    broker.wait_until_healthy(endpoint, settings)
    assert topic_status(EVENTS, endpoint, settings).lag_seconds
    claim_subscription(EVENTS, endpoint, settings)
    schemas = f"schemas/{settings.pulsar.namespace}/events/schemas"
    assert call_admin("GET", schemas, endpoint, settings).json()["getSchemaResponses"]
    options = Options.parse(source_options(settings, endpoint, EVENTS))
    plan = Plan(options, dated=True)
    ensure_subscriptions(plan)
    ranges = [each.value for each in plan.ranges(plan.starting_offsets(), plan.latest_offsets())]
    with closing(connect(endpoint, settings)) as client:
        rows = [row for each in ranges for batch in read_range(options, each, client) for row in batch.to_pylist()]
    acknowledge(plan, plan.latest_offsets())
    assert topic_status(EVENTS, endpoint, settings).backlog == 0
    return sorted(row["payload"].decode() for row in rows)


@pytest.mark.parametrize("source", ["file", "issuer"])
def test_batches_are_read_while_tokens_expire(
    company: Company, namespace: str, issuer: Issuer, tmp_path: Path, source: str
) -> None:
    given: dict[str, dict[str, Any]] = {
        "file": {"token_file": tmp_path / "token"},
        "issuer": {"oauth2_issuer_url": issuer.url, "oauth2_key_file": key_file(tmp_path, client_id=LANDER)},
    }
    options = source_options(company.settings(namespace, **given[source]), company.endpoint, EVENTS)
    found = []
    with renewed(tmp_path / "token", LANDER):
        planner = PulsarStreamReader(Options.parse(options))
        end = planner.initialOffset()
        for number in range(3):
            time.sleep(TOKEN_LIFE * (number > 0))
            company.send(namespace, str(number))
            start, end = end, planner.latestOffset(end, ReadAllAvailable())
            worker = pickle.loads(pickle.dumps(planner))
            found += [
                row
                for each in worker.partitions(start, end)
                for batch in worker.read(each)
                for row in batch.to_pylist()
            ]
    assert payloads(found) == [b"0", b"1", b"2"]
    assert source == "file" or len(issuer.asked) > 2
    assert "s3cret" not in str(options)


def test_a_stream_of_spark_goes_on_while_its_tokens_expire(
    spark: SparkSession, company: Company, namespace: str, issuer: Issuer, tmp_path: Path
) -> None:
    given = {"oauth2_issuer_url": issuer.url, "oauth2_key_file": key_file(tmp_path, client_id=LANDER)}
    settings = company.settings(namespace, **given).model_copy(update={"home": tmp_path})
    for number in range(2):
        time.sleep(TOKEN_LIFE * number)
        company.send(namespace, str(number))
        land(Lake(spark, settings), Reach(settings, EVENTS, company.endpoint)).trigger(
            availableNow=True
        ).start().awaitTermination()
    rows = Lake(spark, settings).table(EVENTS.bronze_table).read().select("payload").collect()
    assert sorted(bytes(row.payload) for row in rows) == [b"0", b"1"]


def test_a_role_that_lands_may_consume(company: Company, namespace: str, tmp_path: Path) -> None:
    company.send(namespace, "1", "2")
    lander = company.as_role(LANDER, namespace).model_copy(update={"home": tmp_path})
    assert land_all(lander, company.endpoint) == ["1", "2"]
    assert [len(each.sample) for each in contents_of_topics([], company.endpoint, lander)] == [2]
    with pytest.raises(RefusedError, match="the token was refused"):
        create_topics([EVENTS], company.endpoint, lander)


def test_a_topic_that_a_role_may_not_consume_is_left_out_of_several(company: Company, namespace: str) -> None:
    create_topics([replace(EVENTS, topic="secrets")], company.endpoint, company.as_role(CREATOR, namespace))
    company.grant("partner", namespace, "consume", topic="events")
    partner = company.as_role("partner", namespace)
    reach = Reach(partner, replace(EVENTS, topic=("events", "secrets")), company.endpoint)
    assert reach.plan().options.topics == (f"persistent://{namespace}/events",)
    assert reach.told() == f"persistent://{namespace}/secrets: the broker refused the token"
    assert [each.name for each in topic_status(reach.topic, company.endpoint, partner).parts] == ["events"]
    with pytest.raises(RefusedError, match="the token was refused"):
        Reach(partner, replace(EVENTS, topic=re.compile("e.*")), company.endpoint).plan()


def test_a_role_that_sends_may_produce(company: Company, namespace: str) -> None:
    company.grant("sender", namespace, "produce", topic="events")
    sender = company.as_role("sender", namespace)
    assert produce([(EVENTS, [Message("1", b"{}", 0)])], company.endpoint, sender) == {"events": 1}


def test_a_role_that_publishes_may_produce_and_consume(company: Company, namespace: str, tmp_path: Path) -> None:
    """Its token expires again and again while it sends."""
    create_published(["published"], company.endpoint, company.as_role(CREATOR, namespace))
    company.grant(PUBLISHER, namespace, "produce", "consume", topic="published")
    avro = {"type": "record", "name": "Creature", "fields": [{"name": "id", "type": "long"}]}
    publication = Publication(
        topic="published",
        publisher="lakehouse-1",
        record="Creature",
        avro=json.dumps(avro),
        since=0,
        endpoint=company.endpoint,
        settings=company.settings(namespace, token_file=tmp_path / "token"),
    )

    def slowly() -> Iterator[Numbered]:
        for number in range(5):
            time.sleep(TOKEN_LIFE / 2 * (number > 0))
            yield (number, "key", b'{"id": 1}')

    with renewed(tmp_path / "token", PUBLISHER):
        assert count_partitions(publication) == 2
        assert send(publication, 0, slowly()) == 5
        assert [last and last.sequence for last in last_messages(publication)] == [4, None]


def test_a_certificate_is_a_role(company: Company, namespace: str, tmp_path: Path) -> None:
    company.send(namespace, "1")
    certificate, key = company.encrypted.issue("lander.acme", common_name=LANDER)
    given = {"tls_trust_certs": company.encrypted.trusted, "tls_certificate": certificate, "tls_key": key}
    lander = company.settings(namespace, **given).model_copy(update={"home": tmp_path})
    assert land_all(lander, company.encrypted.endpoint) == ["1"]
    with pytest.raises(RefusedError, match=f"the certificate of pulsar.tls_certificate, {certificate}, was refused: "):
        create_topics([EVENTS], company.encrypted.endpoint, lander)


def test_a_listener_that_the_brokers_know_or_not(company: Company, namespace: str, tmp_path: Path) -> None:
    """An embedded broker is reached at its service URL whatever it advertises, so this is not about the address."""
    company.send(namespace, "1")
    given = {"token": token(LANDER), "listener_name": "external"}
    assert land_all(company.settings(namespace, **given), company.endpoint) == ["1"]
    with pytest.raises(RefusedError) as error:
        broker.wait_until_healthy(company.endpoint, company.settings(namespace, **given | {"listener_name": "other"}))
    assert str(error.value) == f"pulsar.listener_name: {company.endpoint.admin_url} advertises no listener other"


def test_the_client_asks_for_the_addresses_of_the_listener(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(pulsar, "Client", lambda _, **given: given)
    cluster = Cluster(service_url="pulsar://one:6650", admin_url="http://one:8080", listener_name="external")
    client: Any = reading.connect(cluster, str(tmp_path / "log"))
    assert client["listener_name"] == "external"


def test_pulsars_own_proxy(company: Company, namespace: str, tmp_path: Path) -> None:
    company.send(namespace, "1")
    lander = company.as_role(LANDER, namespace).model_copy(update={"home": tmp_path})
    company.grant(PROXY, namespace, "consume")
    with pulsar_proxy(tmp_path, company.endpoint, lander) as proxy:
        assert land_all(lander, proxy) == ["1"]


def test_an_http_proxy_before_the_admin_api(company: Company, namespace: str, monkeypatch: pytest.MonkeyPatch) -> None:
    company.send(namespace, "1")
    lander, real = company.as_role(LANDER, namespace), company.endpoint.admin_url.removeprefix("http://")
    with http_proxy({"brokers.acme:8080": real}) as proxy:
        monkeypatch.setenv("HTTP_PROXY", proxy.url)
        named = Endpoint(service_url=company.endpoint.service_url, admin_url="http://brokers.acme:8080")
        assert topic_status(EVENTS, named, lander).backlog == 1
        topics = Topics.__new__(Topics)
        topics.endpoint = named
        assert payloads(topics.read(f"persistent://{namespace}/events", token=token(LANDER))) == [b"1"]
    assert set(proxy.seen) == {"brokers.acme:8080"}


def test_a_token_that_has_expired(company: Company, namespace: str, tmp_path: Path) -> None:
    (tmp_path / "token").write_text(token(LANDER, seconds=-1_000))
    with pytest.raises(RefusedError) as error:
        broker.wait_until_healthy(company.endpoint, company.settings(namespace, token_file=tmp_path / "token"))
    assert "the token of pulsar.token_file, which expired at 20" in str(error.value)


def test_an_issuer_that_refuses_or_does_not_answer(
    company: Company, namespace: str, issuer: Issuer, tmp_path: Path
) -> None:
    found = []
    for url, client in ((issuer.url, "wr0ng"), ("http://127.0.0.1:1", "s3cret")):
        file = key_file(tmp_path, client_secret=client)
        given = company.settings(namespace, oauth2_issuer_url=url, oauth2_key_file=file)
        settings = given.model_copy(update={"run": given.run.model_copy(update={"broker_timeout": 0.5})})
        with pytest.raises(BrokerError) as error:
            broker.wait_until_healthy(company.endpoint, settings)
        found.append((isinstance(error.value, RefusedError), str(error.value)))
    refusal = f"{issuer.url} refuses the client owner: invalid_client: Invalid client secret"
    assert found == [
        (True, f"pulsar.oauth2_key_file: {refusal}"),
        (False, "pulsar.oauth2_issuer_url: http://127.0.0.1:1: no answer: ConnectionError, for 0.5 s"),
    ]
