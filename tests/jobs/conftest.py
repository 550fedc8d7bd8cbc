"""A small project that tests look into, and do not change."""

import pytest

from pulsar_lakehouse.settings import Settings
from pulsar_lakehouse.tables.lake import Lake
from tests.jobs.test_maintenance import follow
from tests.lake import land_literally, own_home
from tests.messages import item, order, tombstone, user

WAVES = [
    [user(1), item(1), order(1, place=1), order(2, place=2, user=2), order(3, place=3, price=-1)],
    [user(2, when=20, place=1), item(1, 2.5, when=5, place=1), order(1, place=4, when=11)],
    [tombstone("users", "2", when=5, place=2), user(4, place=3, mergedAt=0, parentUserId=1), order(5, place=5, user=8)],
]


@pytest.fixture(scope="session")
def seen(lake: Lake, tmp_path_factory: pytest.TempPathFactory) -> Settings:
    """After each wave, everything was merged and enriched."""
    project = own_home(lake.settings, tmp_path_factory.mktemp("seen"))
    for wave in WAVES:
        land_literally(Lake(lake.spark, project), wave)
        follow(Lake(lake.spark, project))
    return project
