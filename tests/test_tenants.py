"""Two tenants on one broker, with topics of the same names: one that floods and is killed does not touch the other."""

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from domains.shop.workload import Workload
from jobs.steps import reconcile_all, run_all
from lakehouse.delta.leases import write_lease
from lakehouse.errors import BusyError
from lakehouse.pulsar.endpoint import Endpoint
from lakehouse.pulsar.produce import produce
from lakehouse.pulsar.status import topic_status
from lakehouse.settings import Settings
from tests.lake import environment, expected, messages, own_topics, tables
from tests.oracle import Oracle
from tests.shop import TOPICS, WRITTEN

LAKEHOUSE = Path(sys.executable).with_name("lakehouse")
CALM = Workload(users=100, orders=500, missing_users=0.1, deleted_users=0.1, duplicates=0.1, malformed=0.1)
FLOOD = Workload(users=100, orders=20_000, missing_users=0.1, malformed=0.3)


def wait_until(condition: Callable[[], bool]) -> None:
    until = time.monotonic() + 300
    while not condition():
        assert time.monotonic() < until, "it took too long"
        time.sleep(0.02)


def is_writing(lake: Settings) -> bool:
    """Whether a process holds the leases of its tables."""
    try:
        with write_lease(lake, WRITTEN):
            return False
    except BusyError:
        return True


def backlogs(lake: Settings, endpoint: Endpoint) -> dict[str, int]:
    return {topic.name: topic_status(topic, endpoint, lake).backlog for topic in TOPICS}


@pytest.fixture(scope="module")
def acme(settings: Settings, endpoint: Endpoint, tmp_path_factory: pytest.TempPathFactory) -> Settings:
    return own_topics(settings, endpoint, tmp_path_factory.mktemp("shop"), tenant="acme")


@pytest.fixture(scope="module")
def globex(settings: Settings, endpoint: Endpoint, tmp_path_factory: pytest.TempPathFactory) -> Settings:
    return own_topics(settings, endpoint, tmp_path_factory.mktemp("shop"), tenant="globex")


def test_a_tenant_runs_as_if_it_was_alone(
    spark: SparkSession, endpoint: Endpoint, acme: Settings, globex: Settings
) -> None:
    for lake, workload in ((globex, FLOOD), (acme, CALM)):
        produce([(topic, workload.first(topic.name)) for topic in TOPICS], endpoint, lake)
    command = [str(LAKEHOUSE), "run", "--every", "1s"]
    small_batches = environment(globex, LAKEHOUSE_RUN__MAX_BYTES_PER_BATCH=str(2**20))
    with (globex.home / "run.log").open("wb") as log:
        flooded = subprocess.Popen(command, env=os.environ | small_batches, cwd=globex.home, stdout=log, stderr=log)
    try:
        wait_until(
            lambda: flooded.poll() is not None or any(Path(globex.warehouse_root).glob("bronze/*/_delta_log/*1.json"))
        )
        assert is_writing(globex)
    finally:
        flooded.kill()
        flooded.wait()
    wait_until(lambda: not is_writing(globex))
    waiting = backlogs(globex, endpoint)
    assert all(outcome.rows for outcome in run_all(spark, acme) if outcome.name.startswith("enrich"))
    assert all(reconciliation.holds for reconciliation in reconcile_all(spark, acme))
    assert tables(acme) == expected(Oracle().run(messages(acme)))
    assert (backlogs(acme, endpoint), backlogs(globex, endpoint)) == (dict.fromkeys(waiting, 0), waiting)


def test_the_one_that_was_killed_goes_on_where_it_was(
    spark: SparkSession, endpoint: Endpoint, acme: Settings, globex: Settings
) -> None:
    before = tables(acme)
    assert all(outcome.rows for outcome in run_all(spark, globex) if outcome.name.startswith("enrich"))
    assert tables(globex) == expected(Oracle().run(messages(globex)))
    assert backlogs(globex, endpoint) == dict.fromkeys(backlogs(acme, endpoint), 0)
    assert tables(acme) == before
