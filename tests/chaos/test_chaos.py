"""A few faults, so that `make chaos` keeps working; and a check that its comparison finds differences."""

import random
from collections.abc import Iterator

import pytest
from deltalake import DeltaTable

from pulsar_lakehouse.pulsar.endpoint import Endpoint
from pulsar_lakehouse.settings import Settings
from tests.chaos import faults
from tests.chaos.run import suffer
from tests.chaos.world import World
from tests.lake import own_topics

pytestmark = [pytest.mark.spark, pytest.mark.long]


@pytest.fixture(scope="module")
def world(settings: Settings, endpoint: Endpoint, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    world = World(own_topics(settings, endpoint, tmp_path_factory.mktemp("chaos")), random.Random(1))
    try:
        world.restore_topics()
        world.send()
        world.run()
        world.await_agreement()
        yield world
    finally:
        world.kill()


@pytest.mark.parametrize("fault", [faults.topics_unloaded, faults.worker_killed])
def test_a_fault_is_survived(world: World, fault: faults.Fault) -> None:
    assert suffer(world, fault, number=1).failure == ""


def test_a_message_that_is_in_no_table_is_noticed(world: World) -> None:
    world.stop()
    where, lost = world.topics.popitem()
    assert world.recomputation().differences(world.settings)[0].startswith("bronze: 1 too many")
    world.topics[where] = lost
    gold = DeltaTable(world.settings.table_path("gold.enriched_orders"))
    row = gold.to_pyarrow_table().to_pylist()[0]
    gold.delete(f"line_item_id = {row['line_item_id']}")
    assert world.recomputation().differences(world.settings)[0].startswith("gold: 1 missing")
