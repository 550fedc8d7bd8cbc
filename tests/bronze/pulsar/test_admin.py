"""What the source asks of the broker's admin API, and how it is refused, for example by a broker that wants a token."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import trustme

from pulsar_lakehouse.bronze.partitions import source_options
from pulsar_lakehouse.bronze.pulsar.admin import Admin, EntryMetadata
from pulsar_lakehouse.bronze.pulsar.options import NoAnswerError, Options, PulsarSourceError
from pulsar_lakehouse.bronze.pulsar.planning import Plan
from pulsar_lakehouse.bronze.pulsar.positions import BEGINNING, Ledger, Position, Range, Span
from pulsar_lakehouse.bronze.pulsar.subscription import acknowledge
from pulsar_lakehouse.bronze.warehouse_claims import claim_subscription
from pulsar_lakehouse.domains.shop.declarations.items import ITEMS
from pulsar_lakehouse.domains.shop.workload import Workload
from pulsar_lakehouse.errors import BrokerError, RefusedError
from pulsar_lakehouse.local import broker
from pulsar_lakehouse.pulsar.endpoint import Endpoint, call_admin
from pulsar_lakehouse.pulsar.produce import Message, produce
from pulsar_lakehouse.pulsar.topic_admin import create_topics
from pulsar_lakehouse.settings import load_settings
from tests.bronze.broker_topics import Topics, numbers
from tests.guarded import Encrypted, encrypted_ports, guarded_broker
from tests.redirects import redirecting_brokers
from tests.tokens import token


@pytest.fixture(scope="module")
def encrypted(tmp_path_factory: pytest.TempPathFactory) -> Encrypted:
    return encrypted_ports(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def guarded(encrypted: Encrypted, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Topics]:
    """Topics of a broker that wants a token and knows one role, `owner`."""
    with guarded_broker(tmp_path_factory.mktemp("guarded"), encrypted) as topics:
        yield topics


def test_the_right_token_reads(guarded: Topics) -> None:
    topic = guarded.create("read")
    guarded.send_numbers(topic, range(3))
    assert numbers(guarded.read(topic, token=token("owner"))) == [0, 1, 2]


@pytest.mark.parametrize(
    "wrong", [token("owner", b"another key, which is long enough as well"), token("guest"), "junk.junk.junk"]
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


def test_an_encrypted_connection(guarded: Topics, encrypted: Encrypted) -> None:
    topic = guarded.create("encrypted")
    guarded.send_numbers(topic, range(3))
    urls = {"serviceUrl": encrypted.endpoint.service_url, "adminUrl": encrypted.endpoint.admin_url}
    options = {**urls, "token": token("owner"), "tlsTrustCerts": encrypted.trusted}
    assert numbers(guarded.read(topic, **options)) == [0, 1, 2]


def test_a_certificate_that_is_not_trusted(guarded: Topics, encrypted: Encrypted, tmp_path: Path) -> None:
    trustme.CA().cert_pem.write_to_path(tmp_path / "other.pem")
    topic, (planned,) = guarded.create("encrypted"), guarded.plan(guarded.create("encrypted"), token=token("owner"))
    options = {"token": token("owner"), "tlsTrustCerts": tmp_path / "other.pem"}
    refused = (
        rf"^https://.*: its certificate is not signed by a CA of option tlsTrustCerts, {options['tlsTrustCerts']}$"
    )
    with pytest.raises(PulsarSourceError, match=refused):
        guarded.plan(topic, adminUrl=encrypted.endpoint.admin_url, **options)
    with pytest.raises(PulsarSourceError, match=f"^{planned}: Pulsar error: ConnectError$"):
        guarded.read_range(planned, serviceUrl=encrypted.endpoint.service_url, **options)


def test_commands_by_an_encrypted_connection(guarded: Topics, encrypted: Encrypted, tmp_path: Path) -> None:
    """Commands create topics and send messages with the same settings."""
    pulsar = {"token": token("owner"), "tls_trust_certs": encrypted.trusted, "namespace": "public/encrypted"}
    own = load_settings(home=tmp_path, pulsar=pulsar)
    create_topics([ITEMS.topic], encrypted.endpoint, own)
    sent = produce([(ITEMS.topic, Workload(duplicates=0, malformed=0).first("items"))], encrypted.endpoint, own)
    assert sent == {"items": 2_198}


def test_a_tenant_is_kept_to_its_own_topics_by_its_token(guarded: Topics, tmp_path: Path) -> None:
    def create(role: str, namespace: str) -> None:
        own = load_settings(home=tmp_path, pulsar={"token": token(role), "namespace": namespace})
        create_topics([ITEMS.topic], guarded.endpoint, own)

    with pytest.raises(RefusedError) as missing:
        create("acme", "acme/shop")
    assert str(missing.value) == (
        "Pulsar has no tenant acme, and this token may not create it: let an administrator run "
        "`pulsar-admin tenants create acme --admin-roles ROLE`, with the role of this token"
    )
    owner = load_settings(home=tmp_path, pulsar={"token": token("owner")})
    for tenant in ("acme", "globex"):
        allowed = {"adminRoles": [tenant], "allowedClusters": ["standalone"]}
        call_admin("PUT", f"tenants/{tenant}", guarded.endpoint, owner, body=allowed)
        create(tenant, f"{tenant}/shop")
    with pytest.raises(RefusedError, match="namespaces/globex/shop: the token was refused: "):
        create("acme", "globex/shop")
    topic = "persistent://globex/shop/items-partition-0"
    with pytest.raises(PulsarSourceError, match=f"^{topic}: the broker refused the token$"):
        guarded.plan(topic, token=token("acme"))
    stranger = load_settings(home=tmp_path, pulsar={"token": token("acme"), "namespace": "globex/shop"})
    with pytest.raises(BrokerError, match="Authorization"):
        produce([(ITEMS.topic, [Message("1", b"{}", 0)])], guarded.endpoint, stranger)


def test_a_role_that_may_produce_and_consume_can_land(guarded: Topics, tmp_path: Path) -> None:
    pulsar = {"namespace": guarded.namespace, "token": token("owner")}
    owner, reader = (load_settings(home=tmp_path, pulsar={**pulsar, "token": token(of)}) for of in ("owner", "reader"))
    topic, endpoint = ITEMS.topic, guarded.endpoint
    create_topics([topic], endpoint, owner)
    permissions = f"namespaces/{guarded.namespace}/permissions/reader"
    call_admin("POST", permissions, endpoint, owner, body=["produce", "consume"])
    produce([(topic, [Message("1", b"{}", 0)])], endpoint, reader)
    claim_subscription(topic, endpoint, reader)
    options = source_options(reader, endpoint, topic)
    plan = Plan(Options.parse(options), dated=True)
    acknowledge(plan, plan.latest_offsets())
    assert [guarded.backlog(partition, topic.subscription) for partition in plan.held] == [0, 0]
    assert [row["payload"] for row in guarded.read(options["topic"], token=token("reader"))] == [b"{}"]


def test_commands_wait_for_no_broker_that_refuses_them(guarded: Topics, encrypted: Encrypted, tmp_path: Path) -> None:
    other, port = tmp_path / "other.pem", guarded.endpoint.admin_url.rpartition(":")[2]
    trustme.CA().cert_pem.write_to_path(other)
    trusted, secure, plain = encrypted.trusted, encrypted.endpoint, guarded.endpoint
    elsewhere, ready = replace(secure, admin_url=plain.admin_url), f"GET {plain.admin_url}/admin/v2/brokers/ready"
    unknown = f"its certificate is not signed by a CA of pulsar.tls_trust_certs, {other}"
    unset = "its certificate is not signed by a CA that this machine trusts: set pulsar.tls_trust_certs"
    cases: list[tuple[Endpoint, dict[str, Any], str]] = [
        (secure, {"tls_trust_certs": other}, f"{secure.admin_url}: {unknown}"),
        (secure, {}, f"{secure.admin_url}: {unset}"),
        (elsewhere, {"tls_trust_certs": other}, f"{secure.service_url}: {unknown}"),
        (elsewhere, {}, f"{secure.service_url}: {unset}"),
        (
            replace(secure, service_url=secure.service_url.replace("127.0.0.1", "localhost")),
            {"tls_trust_certs": trusted},
            f"{secure.service_url.replace('127.0.0.1', 'localhost')}: its certificate is refused: Hostname mismatch, "
            "certificate is not valid for 'localhost'.",
        ),
        (
            replace(plain, admin_url=f"https://127.0.0.1:{port}"),
            {"tls_trust_certs": trusted},
            f"https://127.0.0.1:{port}: the server there does not use TLS",
        ),
        (
            plain,
            {"token": "junk.junk.junk"},
            f"{ready}: the token was refused: Unauthorized",
        ),
        (
            plain,
            {"token": None},
            f"{ready}: no token was sent: set pulsar.token_file, pulsar.oauth2_issuer_url or LAKEHOUSE_PULSAR__TOKEN: "
            "Unauthorized",
        ),
    ]
    found = []
    for endpoint, given, _ in cases:
        settings = load_settings(home=tmp_path, pulsar={"token": token("owner")} | given)
        with pytest.raises(RefusedError) as error:
            broker.wait_until_healthy(endpoint, settings)
        found.append(str(error.value))
    assert found == [line for *_, line in cases]
    lax = {"token": token("owner"), "tls_trust_certs": trusted, "tls_validate_hostname": False}
    broker.wait_until_healthy(cases[4][0], load_settings(home=tmp_path, pulsar=lax))


def test_a_broker_that_is_not_there() -> None:
    urls = {"serviceUrl": "pulsar://127.0.0.1:1", "adminUrl": "http://127.0.0.1:1", "topic": "events"}
    with pytest.raises(NoAnswerError) as error:
        Admin(Options.parse(urls)).partitions("persistent://public/default/events")
    assert str(error.value) == "http://127.0.0.1:1: no answer from the broker: ConnectionError"


def test_the_first_broker_is_dead_and_the_second_redirects_to_a_third() -> None:
    with redirecting_brokers({"partitions": 2}, token=token("owner")) as url:
        urls = {"serviceUrl": "pulsar://127.0.0.1:1", "adminUrl": url, "topic": "events", "token": token("owner")}
        found = Admin(Options.parse(urls)).partitions("persistent://public/default/events")
    assert found == [f"persistent://public/default/events-partition-{index}" for index in (0, 1)]


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


@pytest.mark.parametrize("written", ["2026-11-24T10:00:00.5+01:00", "2026-11-24T09:00:00.5Z"])
def test_a_partition_was_made_at_one_moment_in_any_time_zone(monkeypatch: pytest.MonkeyPatch, written: str) -> None:
    """A broker that has moved, or a laptop that travels, reports the moment in another time zone."""
    stats = {"lastConfirmedEntry": "-1:-1", "ledgers": [], "cursors": {}}
    answers = {"/internalStats": stats, "/internal-info": {"creationDate": written}}
    monkeypatch.setattr(Admin, "_call", lambda *call, **_: SimpleNamespace(json=lambda: answers[call[-1]]))
    admin = Admin(Options(service_url="pulsar://x", admin_url="http://x", topics=("t",)))
    assert admin.dated_ledgers("t").created == "2026-11-24T09:00:00.500000+00:00"


def test_what_an_entry_says_of_itself(topics: Topics) -> None:
    topic = topics.create()
    one, many = *topics.send(topic, b"a"), topics.send(topic, b"a", b"b", batched=True)[0]
    admin = Admin(Options.parse(topics.options(topic)))
    plain = EntryMetadata(messages=1, chunk=0, chunks=1, uuid=None, is_hidden=False, sealed=None)
    assert (admin.entry(topic, one), plain.is_message) == (plain, True)
    assert admin.entry(topic, many) == EntryMetadata(
        messages=2, chunk=0, chunks=1, uuid=None, is_hidden=False, sealed=None
    )
    assert admin.entry(topic, Position(one.ledger + 1_000, 0)) is None


def test_only_the_last_chunk_is_a_message(topics: Topics) -> None:
    topic = topics.create()
    topics.send(topic, b"large" * 1_200_000, chunking_enabled=True)
    admin = Admin(Options.parse(topics.options(topic)))
    chunks = [entry for position in topics.entries(topic) if (entry := admin.entry(topic, position))]
    assert [(entry.chunk, entry.chunks, entry.is_message) for entry in chunks] == [(0, 2, False), (1, 2, True)]
    assert len({entry.uuid for entry in chunks}) == 1


def test_a_subscription_that_several_make_at_once(topics: Topics) -> None:
    topic = topics.create()
    topics.send(topic, b"a")
    admins = [Admin(Options.parse(topics.options(topic))) for _ in range(8)]
    with ThreadPoolExecutor(len(admins)) as pool:
        for name in ("lake", "sea", "pond", "well"):
            list(pool.map(lambda admin, name=name: admin.ensure_subscription(topic, name), admins))
            assert topics.backlog(topic, name) == 1


@pytest.mark.parametrize(
    ("answers", "error"),
    [
        (["412 Subscription Busy", "412 Subscription Busy", "409 it exists"], None),
        (["412 Subscription Busy"] * 3, "^topic: the broker answered 412 Subscription Busy$"),
        (["412 Topic not ready"], "^topic: the broker answered 412 Topic not ready$"),
    ],
)
def test_a_busy_subscription_is_waited_for(
    monkeypatch: pytest.MonkeyPatch, answers: list[str], error: str | None
) -> None:
    given = (SimpleNamespace(status_code=int(answer[:3]), reason=answer[4:], text="") for answer in answers)
    monkeypatch.setattr("pulsar_lakehouse.bronze.pulsar.admin.BUSY_PAUSES", (0, 0))
    monkeypatch.setattr(Admin, "_call", lambda *_, **__: next(given))
    urls = {"serviceUrl": "pulsar://127.0.0.1:1", "adminUrl": "http://127.0.0.1:1", "topic": "events"}
    with pytest.raises(NoAnswerError, match=error) if error else nullcontext():
        Admin(Options.parse(urls)).ensure_subscription("topic", "lake")
    assert list(given) == []


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
