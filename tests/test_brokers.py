"""From topics to gold, and to a topic again, while parts of a Pulsar cluster are lost."""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from pulsar_lakehouse.domains.shop.workload import Workload
from pulsar_lakehouse.pulsar.endpoint import call_admin
from pulsar_lakehouse.pulsar.produce import produce
from pulsar_lakehouse.pulsar.topic_admin import create_published
from pulsar_lakehouse.settings import Settings, load_settings
from tests.brokers import PulsarCluster
from tests.lake import environment, expected, messages, own_topics, read, tables, versions
from tests.oracle import Oracle
from tests.published import GOLD_TOPIC, gold, seen, sent
from tests.shop import PUBLISHED, TOPICS
from tests.tokens import token

pytestmark = [pytest.mark.brokers, pytest.mark.broker, pytest.mark.spark]

LAKEHOUSE = Path(sys.prefix) / "bin" / "lakehouse"
MESSY = Workload(
    users=300, orders=20_000, missing_users=0.05, late_users=0.2, deleted_users=0.1, duplicates=0.1, malformed=0.1
)
MORE = {"LAKEHOUSE_RUN__MAX_BYTES_PER_BATCH": str(2**20), "LAKEHOUSE_PULSAR__TOKEN": token("owner")}

Fault = Callable[[PulsarCluster, str], None]
"""Something that happens to the cluster, or to the topic with this name."""


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PulsarCluster]:
    folder = tmp_path_factory.mktemp("brokers")
    made = PulsarCluster(folder, load_settings(home=folder / "home", pulsar={"token": token("owner")}))
    try:
        made.start()
        yield made
    finally:
        made.kill_all()


def lose_broker(brokers: PulsarCluster, topic: str) -> None:
    brokers.kill(brokers.owner(topic))


def freeze_broker(brokers: PulsarCluster, topic: str) -> None:
    """Until after the other broker has taken over, as if the machine had been suspended."""
    frozen = brokers.processes[brokers.owner(topic)]
    frozen.suspend()
    time.sleep(45)
    frozen.resume()


def lose_bookie(brokers: PulsarCluster, _: str) -> None:
    brokers.kill("bookie-0")


def move(brokers: PulsarCluster, topic: str) -> None:
    brokers.move(topic)


@contextmanager
def running(project: Settings, command: str) -> Iterator[subprocess.Popen[bytes]]:
    with (project.home / f"{command}.log").open("wb") as log:
        given = {**os.environ, **environment(project, **MORE)}
        process = subprocess.Popen([LAKEHOUSE, command], env=given, cwd=project.home, stdout=log, stderr=log)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def wait_for(condition: Callable[[], bool], process: subprocess.Popen[bytes]) -> None:
    while not condition():
        assert process.poll() is None, "it has ended"
        time.sleep(0.02)


def ended(project: Settings, command: str, process: subprocess.Popen[bytes]) -> str:
    """What a command has shown, which must succeed."""
    code, shown = process.wait(400), (project.home / f"{command}.log").read_text()
    assert (code, "Traceback" in shown) == (0, False), shown
    return shown


def published(brokers: PulsarCluster, project: Settings) -> int:
    """The messages that were published since the broker loaded the topic."""
    path = f"persistent/{project.pulsar.namespace}/{GOLD_TOPIC}/partitioned-stats"
    return int(call_admin("GET", path, brokers.endpoint, project).json()["msgInCounter"])


@pytest.mark.parametrize("fault", [lose_broker, freeze_broker, lose_bookie, move])
def test_what_is_lost_while_messages_land_and_gold_is_published(
    brokers: PulsarCluster, tmp_path: Path, fault: Fault
) -> None:
    brokers.mend()
    project = own_topics(brokers.settings, brokers.endpoint, tmp_path)
    create_published(PUBLISHED, brokers.endpoint, project)
    streams = [(topic, phase(topic.name)) for phase in (MESSY.first, MESSY.late) for topic in TOPICS]
    acknowledged = produce(streams, brokers.endpoint, project)

    with running(project, "run") as process:
        wait_for(lambda: versions(project).get("bronze.orders", 0) > 1, process)
        assert len(read(project, "bronze.orders")) < acknowledged["orders"]
        fault(brokers, f"{project.pulsar.namespace}/orders-partition-0")
        assert ended(project, "run", process).count("holds") == 3
    landed = messages(project)
    assert len({(message.topic, message.position) for message in landed}) == len(landed) == sum(acknowledged.values())
    assert tables(project) == expected(Oracle().run(landed))

    brokers.mend()
    rows = gold(project)
    with running(project, "publish") as process:
        wait_for(lambda: 0 < published(brokers, project) < len(rows), process)
        fault(brokers, f"{project.pulsar.namespace}/{GOLD_TOPIC}-partition-0")
        ended(project, "publish", process)
    found = sent(project, brokers.endpoint)
    assert len(found) == len(rows)
    assert seen(found) == rows
