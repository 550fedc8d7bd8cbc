"""From topics to gold on a real broker: every table holds what the oracle says, row by row."""

import shutil
from collections.abc import Callable, Iterator

import pytest
from pyspark.sql import SparkSession

from pulsar_lakehouse.domains.shop.workload import Workload
from pulsar_lakehouse.jobs.steps import reconcile_all, run_all
from pulsar_lakehouse.pulsar.endpoint import Endpoint
from pulsar_lakehouse.pulsar.produce import Message, produce
from pulsar_lakehouse.settings import Settings
from pulsar_lakehouse.tables.lake import Lake
from tests.lake import expected, messages, own_topics, tables, versions
from tests.oracle import Oracle
from tests.shop import TOPICS

MESSY = Workload(
    users=300,
    orders=3_000,
    missing_users=0.05,
    missing_items=0.03,
    late_users=0.2,
    updated_users=0.1,
    deleted_users=0.2,
    merged_users=0.1,
    updated_items=0.1,
    deleted_items=0.05,
    duplicates=0.1,
    malformed=0.1,
)

Phase = Callable[[str], Iterator[Message]]


@pytest.fixture(scope="module")
def project(settings: Settings, endpoint: Endpoint, tmp_path_factory: pytest.TempPathFactory) -> Settings:
    return own_topics(settings, endpoint, tmp_path_factory.mktemp("end_to_end"))


@pytest.fixture(scope="module")
def oracle() -> Oracle:
    return Oracle()


def send(phase: Phase, endpoint: Endpoint, settings: Settings) -> None:
    produce([(topic, phase(topic.name)) for topic in TOPICS], endpoint, settings)


def run(lake: Lake) -> dict[str, int]:
    return {outcome.name: outcome.rows for outcome in run_all(lake)}


def test_first_everything_lands_and_what_lacks_state_waits(
    spark: SparkSession, endpoint: Endpoint, project: Settings, oracle: Oracle
) -> None:
    send(MESSY.first, endpoint, project)
    run(Lake(spark, project))
    assert tables(project) == expected(oracle.run(messages(project)))
    assert oracle.waiting
    assert oracle.duplicates
    assert oracle.malformed


def test_then_late_users_release_orders_and_changes_arrive_in_no_order(
    spark: SparkSession, endpoint: Endpoint, project: Settings, oracle: Oracle
) -> None:
    before, waited = set(messages(project)), len(oracle.waiting)
    send(MESSY.late, endpoint, project)
    run(Lake(spark, project))
    new = [message for message in messages(project) if message not in before]
    assert tables(project) == expected(oracle.run(new))
    assert 0 < len(oracle.waiting) < waited


def test_what_landed_is_in_exactly_one_place(spark: SparkSession, project: Settings) -> None:
    reconciliations = {reconciliation.topic: reconciliation for reconciliation in reconcile_all(Lake(spark, project))}
    assert {
        topic: reconciliation.problems for topic, reconciliation in reconciliations.items() if not reconciliation.holds
    } == {}
    assert sum(reconciliation.landed for reconciliation in reconciliations.values()) == len(messages(project))


def test_a_run_with_nothing_new_commits_nothing(spark: SparkSession, project: Settings) -> None:
    before = versions(project)
    assert set(run(Lake(spark, project)).values()) == {0}
    assert versions(project) == before


def test_lost_checkpoints_change_nothing(spark: SparkSession, project: Settings, oracle: Oracle) -> None:
    shutil.rmtree(project.checkpoint_root)
    run(Lake(spark, project))
    assert tables(project) == expected(oracle)
    assert all(reconciliation.holds for reconciliation in reconcile_all(Lake(spark, project)))
