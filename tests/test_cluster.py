"""From topics to gold on a Spark cluster: executors and workers are lost, and one user has half of all orders."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest

from pulsar_lakehouse.domains.shop.workload import Workload
from pulsar_lakehouse.pulsar.endpoint import Endpoint
from pulsar_lakehouse.pulsar.produce import Message, produce
from pulsar_lakehouse.settings import Settings
from pulsar_lakehouse.spark.session import SHORT_RUN
from tests.cluster import Cluster, skewed
from tests.lake import environment, expected, messages, own_topics, tables, versions
from tests.oracle import Oracle
from tests.s3 import Server, in_store
from tests.shop import TOPICS

pytestmark = [pytest.mark.cluster]

LAKEHOUSE = Path(sys.prefix) / "bin" / "lakehouse"
MESSY = Workload(
    users=300, orders=3_000, missing_users=0.05, late_users=0.2, deleted_users=0.1, duplicates=0.1, malformed=0.1
)
SMALL_BATCHES = {"LAKEHOUSE_RUN__MAX_BYTES_PER_BATCH": str(2**20)}
FAST = SHORT_RUN | {
    "spark.executor.extraJavaOptions": SHORT_RUN["spark.driver.extraJavaOptions"],
    "spark.sql.shuffle.partitions": "2",
}

Phase = Callable[[str], Iterator[Message]]


def lake_of(settings: Settings, endpoint: Endpoint, home: Path, *phases: Phase) -> Settings:
    project = own_topics(settings, endpoint, home)
    produce([(topic, phase(topic.name)) for phase in phases for topic in TOPICS], endpoint, project)
    return project


@contextmanager
def running(project: Settings, cluster: Cluster, **more: str) -> Iterator[subprocess.Popen[bytes]]:
    on_it = {"LAKEHOUSE_SPARK__MASTER": cluster.master, "LAKEHOUSE_SPARK__CONF": json.dumps(FAST)}
    with (project.home / "run.log").open("wb") as log:
        given = {**os.environ, **environment(project, **on_it, **more)}
        process = subprocess.Popen(
            [LAKEHOUSE, "run"], env=given, cwd=project.home, stdout=log, stderr=subprocess.STDOUT
        )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def ends_well(project: Settings, process: subprocess.Popen[bytes]) -> None:
    code, shown = process.wait(900), (project.home / "run.log").read_text()
    assert (code, shown.count("holds"), "Traceback" in shown) == (0, 3, False), shown
    assert tables(project) == expected(Oracle().run(messages(project)))


def wait_for_version(project: Settings, name: str, version: int, process: subprocess.Popen[bytes]) -> None:
    while versions(project).get(name, -1) < version:
        assert process.poll() is None, (project.home / "run.log").read_text()
        time.sleep(0.1)


def test_a_run(settings: Settings, endpoint: Endpoint, cluster: Cluster, tmp_path: Path) -> None:
    project = lake_of(settings, endpoint, tmp_path, MESSY.first, MESSY.late)
    with running(project, cluster) as process:
        ends_well(project, process)
    logs = cluster.executor_logs()
    assert len(logs) >= 2
    for log in logs:
        assert "-XX:ReservedCodeCacheSize=256m" in log
        assert "Running task" in log


def test_executors_that_are_killed(settings: Settings, endpoint: Endpoint, cluster: Cluster, tmp_path: Path) -> None:
    project = lake_of(settings, endpoint, tmp_path, MESSY.first, MESSY.late)
    with running(project, cluster, **SMALL_BATCHES) as process:
        for table in ("bronze.orders", "silver.users", "gold.enriched_orders"):
            wait_for_version(project, table, 0, process)
            cluster.kill_executor()
        ends_well(project, process)
    assert len(cluster.executor_logs()) >= 5


@pytest.mark.s3
def test_tables_in_an_object_store(
    settings: Settings, endpoint: Endpoint, store: Server, cluster: Cluster, tmp_path: Path
) -> None:
    project = lake_of(in_store(settings, store.url, tmp_path.name), endpoint, tmp_path, MESSY.first, MESSY.late)
    with running(project, cluster, **SMALL_BATCHES) as process:
        wait_for_version(project, "bronze.orders", 0, process)
        cluster.kill_executor()
        ends_well(project, process)
    assert not (project.home / "warehouse").exists()


def test_a_worker_that_is_lost(settings: Settings, endpoint: Endpoint, cluster: Cluster, tmp_path: Path) -> None:
    project = lake_of(settings, endpoint, tmp_path, MESSY.first, MESSY.late)
    with running(project, cluster, **SMALL_BATCHES) as process:
        wait_for_version(project, "gold.enriched_orders", 0, process)
        cluster.lose_worker()
        ends_well(project, process)


def test_no_worker_is_left_until_another_comes(
    settings: Settings, endpoint: Endpoint, cluster: Cluster, tmp_path: Path
) -> None:
    project = lake_of(settings, endpoint, tmp_path, MESSY.first, MESSY.late)
    with running(project, cluster, **SMALL_BATCHES) as process:
        wait_for_version(project, "bronze.orders", 0, process)
        cluster.lose_worker()
        cluster.lose_worker()
        time.sleep(10)
        assert process.poll() is None
        cluster.add_worker()
        ends_well(project, process)


def test_one_user_has_half_of_all_orders_and_one_partition_all_of_them(
    settings: Settings, endpoint: Endpoint, cluster: Cluster, tmp_path: Path
) -> None:
    project = lake_of(settings, endpoint, tmp_path, partial(skewed, MESSY), MESSY.late)
    with running(project, cluster) as process:
        ends_well(project, process)
    landed = [message for message in messages(project) if message.topic == "orders"]
    assert len({message.position.partition for message in landed}) == 1
