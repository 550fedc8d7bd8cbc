"""A topic's subscription serves one warehouse: of two projects with the same namespace, the second one stops."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from pulsar_lakehouse.bronze.warehouse_claims import claim_subscription
from pulsar_lakehouse.domains.shop.declarations.orders import ORDERS
from pulsar_lakehouse.errors import PermanentError
from pulsar_lakehouse.jobs.steps import landing
from pulsar_lakehouse.pulsar.endpoint import Endpoint
from pulsar_lakehouse.settings import Settings
from pulsar_lakehouse.tables.lake import Lake
from pulsar_lakehouse.tables.stored import table_names
from tests.lake import own_topics
from tests.shop import TOPICS


@pytest.fixture
def project(settings: Settings, endpoint: Endpoint, tmp_path: Path) -> Settings:
    return own_topics(settings, endpoint, tmp_path)


@pytest.fixture
def other(project: Settings, tmp_path: Path) -> Settings:
    """A home with the same namespace."""
    return project.model_copy(update={"home": tmp_path / "other"})


def test_the_second_project_stops_before_it_has_a_table(
    spark: SparkSession, project: Settings, other: Settings
) -> None:
    landing(Lake(spark, project), TOPICS)
    with pytest.raises(PermanentError) as error:
        landing(Lake(spark, other), TOPICS)
    first = TOPICS[0]
    assert str(error.value) == (
        f"the subscription {first.subscription} of persistent://{project.pulsar.namespace}/{first.name} serves another "
        "warehouse: give each project a namespace of its own. If that warehouse is gone for good, run "
        "`lakehouse land --take-over`"
    )
    assert list(table_names(other)) == []


def test_it_can_take_over(project: Settings, other: Settings, endpoint: Endpoint) -> None:
    claim_subscription(ORDERS.topic, endpoint, project)
    claim_subscription(ORDERS.topic, endpoint, other, take_over=True)
    with pytest.raises(PermanentError):
        claim_subscription(ORDERS.topic, endpoint, project)
