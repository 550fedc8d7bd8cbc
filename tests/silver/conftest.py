from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from pulsar_lakehouse.contracts.decoding import MALFORMED
from pulsar_lakehouse.delta.tables import create_table
from pulsar_lakehouse.domains.shop.declarations.users import USERS
from pulsar_lakehouse.settings import Settings
from tests.lake import own_home


@pytest.fixture
def silver(spark: SparkSession, settings: Settings, tmp_path: Path) -> Settings:
    own = own_home(settings, tmp_path)
    for table in (USERS.table, USERS.history, MALFORMED):
        create_table(spark, own, table)
    return own
