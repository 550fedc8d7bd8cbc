from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from lakehouse.decoding import MALFORMED
from lakehouse.settings import Settings
from lakehouse.tables import create_table
from silver.users import USERS
from tests.lake import own_home


@pytest.fixture
def silver(spark: SparkSession, settings: Settings, tmp_path: Path) -> Settings:
    own = own_home(settings, tmp_path)
    for table in (USERS.table, USERS.history, MALFORMED):
        create_table(spark, own, table)
    return own
