"""The recorded database on a real broker: silver is the database, and gold has what it was as of each order."""

from collections import Counter
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from pulsar_lakehouse.domains.inventory.workload import Workload
from pulsar_lakehouse.inspection.query import query
from pulsar_lakehouse.pulsar.endpoint import Endpoint
from pulsar_lakehouse.settings import Settings
from pulsar_lakehouse.tables.lake import Lake
from tests.domains.rounds import lake_of, run, send, unaccounted
from tests.lake import read


@pytest.fixture
def project(settings: Settings, endpoint: Endpoint, tmp_path: Path) -> Settings:
    return lake_of("inventory", settings, endpoint, tmp_path)


@pytest.mark.long
def test_tables_and_histories_are_those_of_the_database(
    spark: SparkSession, endpoint: Endpoint, project: Settings
) -> None:
    workload = Workload()
    send(workload.first, endpoint, project)
    run(Lake(spark, project))
    assert read(project, "quarantine.waiting_order_lines") != []  # for products, which lag behind
    send(workload.late, endpoint, project)
    run(Lake(spark, project))
    for what, sql, rows in workload.expected():
        assert (what, Counter(query(project, sql).fetchall())) == (what, Counter(rows))
    assert read(project, "quarantine.waiting_order_lines") == []
    assert read(project, "quarantine.malformed") == []
    assert unaccounted(Lake(spark, project)) == {}
