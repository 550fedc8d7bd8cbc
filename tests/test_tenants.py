"""Two tenants on one broker, with topics of the same names: one that floods and is killed does not touch the other."""

import pytest
from pyspark.sql import SparkSession

from domains.shop.workload import Workload
from jobs.steps import reconcile_all, run_all
from lakehouse.pulsar.endpoint import Endpoint
from lakehouse.pulsar.produce import produce
from lakehouse.pulsar.status import topic_status
from lakehouse.settings import Settings
from tests.jobs.test_crashes import commit, is_free, start, wait_until
from tests.lake import expected, messages, own_topics, tables
from tests.oracle import Oracle
from tests.shop import TOPICS, WRITTEN

CALM = Workload(users=100, orders=500, missing_users=0.1, deleted_users=0.1, duplicates=0.1, malformed=0.1)
FLOOD = Workload(users=100, orders=20_000, missing_users=0.1, malformed=0.3)

pytestmark = [pytest.mark.long]


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
    flooded = start(globex, "run", "--every", "1s")
    try:
        wait_until(commit(globex, "bronze.orders", 1).exists)
        assert not is_free(globex, WRITTEN)
    finally:
        flooded.kill()
        flooded.wait()
    wait_until(lambda: is_free(globex, WRITTEN))
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
