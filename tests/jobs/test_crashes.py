"""`kill -9` during a run, and a broker that goes away: the next run ends as if nothing had happened."""

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import psutil
import pytest
from pyspark.sql import SparkSession

from pulsar_lakehouse.domains.shop.workload import Workload
from pulsar_lakehouse.errors import BusyError, LakehouseError
from pulsar_lakehouse.jobs.steps import landing
from pulsar_lakehouse.jobs.streams import catch_up
from pulsar_lakehouse.leases.leases import write_lease
from pulsar_lakehouse.local import broker
from pulsar_lakehouse.pulsar.endpoint import Endpoint
from pulsar_lakehouse.pulsar.produce import produce
from pulsar_lakehouse.pulsar.topic_admin import create_published, create_topics
from pulsar_lakehouse.settings import Settings
from pulsar_lakehouse.tables.lake import Lake
from tests.lake import environment, expected, messages, own_home, own_topics, read, tables
from tests.oracle import Oracle
from tests.published import GOLD_TOPIC, gold, seen, sent
from tests.shop import TOPICS, WRITTEN

LAKEHOUSE = Path(sys.executable).with_name("lakehouse")
MESSY = Workload(users=500, orders=12_000, missing_users=0.02, late_users=0.1, deleted_users=0.1, malformed=0.05)
Process = TypeVar("Process", bound=subprocess.Popen[Any])
SMALL_BATCHES = {"LAKEHOUSE_RUN__MAX_BYTES_PER_BATCH": str(2**20)}


def wait_until(condition: Callable[[], bool], *, seconds: float = 600, poll: float = 0.005) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it took too long"
        time.sleep(poll)


def commit(settings: Settings, table: str, version: int) -> Path:
    return Path(settings.table_path(table)) / "_delta_log" / f"{version:020}.json"


def start(settings: Settings, job: str, *options: str, **more: str) -> subprocess.Popen[bytes]:
    """Start a command, with more environment variables; its output goes to `<job>.log` in the home."""
    with (settings.home / f"{job}.log").open("wb") as log:
        return subprocess.Popen(
            [LAKEHOUSE, job, *options],
            env={**os.environ, **environment(settings, **SMALL_BATCHES, **more)},
            cwd=settings.home,
            stdout=log,
            stderr=subprocess.STDOUT,
        )


@contextmanager
def ended(process: Process) -> Iterator[Process]:
    """Ends the process with the block, however that ends."""
    try:
        yield process
    finally:
        process.terminate()
        process.wait(60)


def is_free(settings: Settings, written: Sequence[str]) -> bool:
    """Whether no process holds the leases, so that the JVM is gone too."""
    try:
        with write_lease(settings, written):
            return True
    except BusyError:
        return False


@pytest.mark.long
def test_runs_that_are_killed_again_and_again(settings: Settings, endpoint: Endpoint, tmp_path: Path) -> None:
    project = own_topics(settings, endpoint, tmp_path)
    produce([(topic, phase(topic.name)) for phase in (MESSY.first, MESSY.late) for topic in TOPICS], endpoint, project)
    for moment in ("bronze.orders", "gold.enriched_orders"):
        process = start(project, "run")
        wait_until(commit(project, moment, 1).exists)
        process.kill()
        assert process.wait() == -9
        wait_until(lambda: is_free(project, WRITTEN))
    last = start(project, "run")
    assert (last.wait(300), (project.home / "run.log").read_text().count("holds")) == (0, 3)
    assert tables(project) == expected(Oracle().run(messages(project)))
    create_published([GOLD_TOPIC], endpoint, project)
    process = start(project, "publish")
    wait_until(lambda: len(sent(project, endpoint)) > 0)
    process.kill()
    assert process.wait() == -9
    wait_until(lambda: is_free(project, [GOLD_TOPIC]))
    assert start(project, "publish").wait(300) == 0
    published = sent(project, endpoint)
    assert seen(published) == gold(project)
    assert len({(message.key, message.sequence) for message in published}) == len(published)


def test_a_jvm_that_is_killed(settings: Settings, endpoint: Endpoint, tmp_path: Path) -> None:
    project = own_topics(settings, endpoint, tmp_path)
    with ended(start(project, "run", "--every", "1s")) as running:
        wait_until(commit(project, "gold.enriched_orders", 0).exists)
        [jvm] = psutil.Process(running.pid).children()
        jvm.kill()
        assert running.wait(60) == 1
    shown = (project.home / "run.log").read_text()
    assert "Traceback" not in shown
    assert shown.splitlines()[-1].startswith("lakehouse: Spark's process was killed by SIGKILL")
    assert is_free(project, WRITTEN)


@pytest.fixture
def own_broker(settings: Settings, tmp_path: Path) -> Iterator[Settings]:
    """A home with its own broker, which has more orders than one batch takes."""
    run = settings.run.model_copy(update={"retries": 2, "retry_delay": 1.0, "max_bytes_per_batch": 2**20})
    project = own_home(settings, tmp_path).model_copy(update={"run": run})
    endpoint = broker.start(project)
    try:
        create_topics(TOPICS, endpoint, project)
        produce([(TOPICS[-1], Workload(orders=30_000).first("orders"))], endpoint, project)
        yield project
    finally:
        broker.stop(project)


def during(settings: Settings, version: int, action: Callable[[], object]) -> threading.Thread:
    """Run the action in a thread, as soon as `bronze.orders` has this version."""

    def wait_and_act() -> None:
        wait_until(commit(settings, "bronze.orders", version).exists)
        action()

    thread = threading.Thread(target=wait_and_act)
    thread.start()
    return thread


@pytest.mark.long
def test_a_broker_that_goes_away(spark: SparkSession, own_broker: Settings, capsys: pytest.CaptureFixture[str]) -> None:
    orders = TOPICS[-1:]
    streams = landing(Lake(spark, own_broker), orders)
    stopped = during(own_broker, 2, lambda: broker.stop(own_broker))
    with pytest.raises(LakehouseError, match=r"^land orders: .*no answer from the broker"):
        catch_up(own_broker, streams)
    stopped.join()
    shown = capsys.readouterr().err
    assert [f"retry {number} of 2 in 1 s" in shown for number in (1, 2, 3)] == [True, True, False]

    def restart() -> None:
        broker.stop(own_broker)
        broker.start(own_broker)

    endpoint = broker.start(own_broker)
    patient = own_broker.model_copy(update={"run": own_broker.run.model_copy(update={"retries": 20})})
    landed = len(list(commit(own_broker, "bronze.orders", 0).parent.glob("*.json")))
    restarted = during(own_broker, landed, restart)
    catch_up(patient, landing(Lake(spark, patient), orders))
    restarted.join()
    assert broker.running(own_broker) == endpoint
    places = [message.position for message in messages(own_broker)]
    sent = sum(1 for _ in Workload(orders=30_000).first("orders"))
    assert (len(places), len(set(places))) == (sent, sent)
    assert len(read(own_broker, "bronze.orders")) == sent
