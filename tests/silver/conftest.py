from pathlib import Path

import pytest

from pulsar_lakehouse.contracts.decoding import MALFORMED
from pulsar_lakehouse.domains.shop.declarations.users import USERS
from pulsar_lakehouse.settings import Settings
from pulsar_lakehouse.tables.lake import Lake
from tests.lake import own_home


@pytest.fixture
def silver(lake: Lake, tmp_path: Path) -> Settings:
    own = own_home(lake.settings, tmp_path)
    for table in (USERS.table, USERS.history, MALFORMED):
        Lake(lake.spark, own).create(table)
    return own
