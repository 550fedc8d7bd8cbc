"""Two tenants on one broker, with topics of the same names: whatever befalls one, the other goes on."""

import json
import os
import re
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from itertools import islice, takewhile
from pathlib import Path

import psutil
import pytest
import requests
from impala.dbapi import connect
from pyspark.sql import SparkSession
from thrift.transport.TTransport import TTransportException

from pulsar_lakehouse.domains.shop.declarations.orders import ORDERS
from pulsar_lakehouse.domains.shop.workload import Workload
from pulsar_lakehouse.errors import BrokerError, PermanentError
from pulsar_lakehouse.jobs.steps import reconcile_all, run_all
from pulsar_lakehouse.local.processes import free_port
from pulsar_lakehouse.pulsar.backlog import topic_status
from pulsar_lakehouse.pulsar.endpoint import Endpoint, call_admin
from pulsar_lakehouse.pulsar.produce import produce
from pulsar_lakehouse.settings import Settings
from pulsar_lakehouse.tables.lake import Lake
from tests.jobs.test_crashes import LAKEHOUSE, ended, is_free, start, wait_until
from tests.lake import environment, expected, messages, own_topics, tables
from tests.oracle import Oracle
from tests.shop import TOPICS, WRITTEN

CALM = Workload(users=100, orders=500, missing_users=0.1, deleted_users=0.1, duplicates=0.1, malformed=0.1)
FLOOD = Workload(users=100, orders=100_000, missing_users=0.1, malformed=0.3)
FLOOD_RATE = 500
"""Orders a second that still come after these."""
PASSWORDS = {"acme": {"ada": "lovelace-1815"}, "globex": {"bob": "babbage-1791"}}

pytestmark = [pytest.mark.long]


class Tenant:
    """A tenant's lakehouse and broker, and how many messages were sent to it."""

    def __init__(self, project: Settings, endpoint: Endpoint) -> None:
        self.lake, self.endpoint, self.sent, self.port = project, endpoint, 0, free_port()

    def run(self) -> subprocess.Popen[bytes]:
        return start(self.lake, "run", "--every", "1s", LAKEHOUSE_METRICS__PORT=str(self.port))

    def send(self, workload: Workload) -> None:
        sent = produce([(topic, workload.first(topic.name)) for topic in TOPICS], self.endpoint, self.lake)
        self.sent += sum(sent.values())

    def seconds_to_send(self, orders: int) -> float:
        begin = time.monotonic()
        messages = islice(CALM.orders_from_now(orders), orders)
        self.sent += sum(produce([(ORDERS.topic, messages)], self.endpoint, self.lake).values())
        return time.monotonic() - begin

    @contextmanager
    def flooded(self) -> Iterator[None]:
        """Orders come without an end while the block runs, after many at once."""
        self.send(FLOOD)
        over = threading.Event()
        orders = takewhile(lambda _: not over.is_set(), FLOOD.orders_from_now(FLOOD_RATE))

        def flood() -> None:
            self.sent += sum(produce([(ORDERS.topic, orders)], self.endpoint, self.lake, rate=FLOOD_RATE).values())

        thread = threading.Thread(target=flood)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()

    def set_quota(self, kind: str, /, **quota: object) -> None:
        call_admin("POST", f"namespaces/{self.lake.pulsar.namespace}/{kind}", self.endpoint, self.lake, body=quota)

    def backlog(self) -> int:
        return sum(topic_status(topic, self.endpoint, self.lake).backlog for topic in TOPICS)

    def is_right(self) -> bool:
        """Whether all that was sent has landed, and the tables are what they must be."""
        landed = messages(self.lake)
        return len(landed) == self.sent and tables(self.lake) == expected(Oracle().run(landed))

    def goes_on(self) -> None:
        """Send some orders, and wait until the pipeline has brought them to its tables.

        Users stay as they are: which version of its user an order carries depends on when it was joined.
        """
        self.seconds_to_send(500)
        wait_until(self.is_right, poll=1)

    def told(self) -> float:
        """How many messages were sent to it, by its metrics."""
        text = requests.get(f"http://127.0.0.1:{self.port}/metrics", timeout=10).text
        return sum(float(each) for each in re.findall(r"^lakehouse_topic_messages_total{.*} (.*)$", text, re.MULTILINE))


@pytest.fixture(scope="module")
def acme(settings: Settings, endpoint: Endpoint, tmp_path_factory: pytest.TempPathFactory) -> Tenant:
    return Tenant(own_topics(settings, endpoint, tmp_path_factory.mktemp("shop"), tenant="acme"), endpoint)


@pytest.fixture(scope="module")
def globex(settings: Settings, endpoint: Endpoint, tmp_path_factory: pytest.TempPathFactory) -> Tenant:
    return Tenant(own_topics(settings, endpoint, tmp_path_factory.mktemp("shop"), tenant="globex"), endpoint)


def freeze(process: subprocess.Popen[bytes]) -> list[psutil.Process]:
    """Stop a process and its children, which then are neither dead nor alive."""
    frozen = [psutil.Process(process.pid), *psutil.Process(process.pid).children(recursive=True)]
    for each in frozen:
        each.suspend()
    return frozen


@contextmanager
def torn(settings: Settings) -> Iterator[Path]:
    """The last commit of a table is empty while the block runs. A checkpoint stays torn."""
    for offsets in Path(settings.checkpoint_path("bronze.orders"), "offsets").glob("[0-9]*"):
        offsets.write_text("")
    last = max(Path(settings.table_path("silver.users"), "_delta_log").glob("[0-9]*.json"))
    commit = last.read_bytes()
    last.write_bytes(b"")
    yield last
    last.write_bytes(commit)


def test_a_tenant_goes_on_beside_one_that_is_flooded_frozen_and_broken(
    spark: SparkSession, acme: Tenant, globex: Tenant
) -> None:
    with ended(acme.run()) as calm, ended(globex.run()) as flooded:
        for tenant in (globex, acme):
            tenant.send(CALM)
            wait_until(tenant.is_right, poll=1)
        with globex.flooded():
            acme.goes_on()
            assert globex.backlog() > 0
            frozen, waiting = freeze(flooded), globex.backlog()
            acme.goes_on()
            assert {process.status() for process in frozen} == {psutil.STATUS_STOPPED}
            assert globex.backlog() > waiting
            assert acme.told() == acme.sent
            with pytest.raises(requests.ReadTimeout):
                globex.told()
            for process in frozen:
                process.kill()
            wait_until(lambda: is_free(globex.lake, WRITTEN))
            with torn(globex.lake) as commit, ended(globex.run()) as broken:
                assert broken.wait(300) == PermanentError.exit_code
                assert str(commit) in (globex.lake.home / "run.log").read_text().splitlines()[-1]
                acme.goes_on()
        assert (acme.backlog(), calm.poll()) == (0, None)
    list(run_all(Lake(spark, globex.lake)))
    assert globex.is_right()
    assert globex.backlog() == 0
    for tenant in (acme, globex):
        assert all(reconciliation.holds for reconciliation in reconcile_all(Lake(spark, tenant.lake)))


def test_a_quota_is_that_of_one_tenant(acme: Tenant, globex: Tenant) -> None:
    globex.set_quota("publishRate", publishThrottlingRateInMsg=500, publishThrottlingRateInByte=-1)
    wait_until(lambda: globex.seconds_to_send(3_000) > 2)
    assert acme.seconds_to_send(3_000) < 1
    globex.set_quota("publishRate", publishThrottlingRateInMsg=-1, publishThrottlingRateInByte=-1)
    globex.set_quota("backlogQuota", limitSize=1, policy="producer_request_hold")

    def is_refused() -> bool:
        try:
            globex.seconds_to_send(1)
        except BrokerError as error:
            return "ProducerBlockedQuotaExceeded" in str(error)
        return False

    wait_until(is_refused, poll=0.1)
    acme.seconds_to_send(1)


@contextmanager
def served(tenant: Tenant, users: dict[str, str]) -> Iterator[Callable[[str, str], int]]:
    """The tenant's endpoint: a function that logs in, and returns the number of orders."""
    own = {**os.environ, **environment(tenant.lake, LAKEHOUSE_SERVE=json.dumps({"users": users}))}
    with (
        subprocess.Popen([LAKEHOUSE, "serve"], env=own, stdout=subprocess.PIPE, text=True) as server,
        ended(server),
    ):
        assert server.stdout is not None
        port = int(server.stdout.readline().split()[4].rpartition(":")[2].partition("/")[0])

        def orders(user: str, password: str) -> int:
            connected = connect(host="127.0.0.1", port=port, auth_mechanism="PLAIN", user=user, password=password)
            with closing(connected) as connection, closing(connection.cursor()) as cursor:
                cursor.execute(f"SELECT count(*) FROM {ORDERS.gold_table}")
                return int(cursor.fetchone()[0])

        yield orders


def test_an_endpoint_knows_the_users_of_its_tenant(acme: Tenant, globex: Tenant) -> None:
    with served(acme, PASSWORDS["acme"]) as of_acme, served(globex, PASSWORDS["globex"]) as of_globex:
        assert of_acme("ada", "lovelace-1815") == len(tables(acme.lake)["gold"])
        assert of_globex("bob", "babbage-1791") == len(tables(globex.lake)["gold"])
        for endpoint, user, password in ((of_globex, "ada", "lovelace-1815"), (of_acme, "bob", "babbage-1791")):
            with pytest.raises(TTransportException):
                endpoint(user, password)
