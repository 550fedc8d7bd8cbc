from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from domains.shop.declarations.users import USERS
from lakehouse.contracts.decoding import MALFORMED
from lakehouse.delta.tables import create_table
from lakehouse.settings import Settings
from tests.lake import own_home


@pytest.fixture
def silver(spark: SparkSession, settings: Settings, tmp_path: Path) -> Settings:
    own = own_home(settings, tmp_path)
    for table in (USERS.table, USERS.history, MALFORMED):
        create_table(spark, own, table)
    return own
