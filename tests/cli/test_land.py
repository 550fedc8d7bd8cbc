from dataclasses import replace
from pathlib import Path

from pyspark.sql.types import StructType

from pulsar_lakehouse.pulsar.endpoint import Endpoint
from pulsar_lakehouse.tables.lake import Lake
from tests.cli.outcome import Command
from tests.lake import environment, own_topics
from tests.shop import TOPICS


def test_a_registered_schema_that_breaks_the_contract_is_told_and_lands_all_the_same(
    lakehouse: Command, lake: Lake, endpoint: Endpoint, tmp_path: Path
) -> None:
    without_id = replace(TOPICS[0], fields=StructType(TOPICS[0].fields.fields[1:]))
    done = lakehouse("land", "items", **environment(own_topics(lake.settings, endpoint, tmp_path, [without_id])))
    line = "items: id is not registered, but declared as a required long"
    assert (done.code, line in done.err.splitlines()) == (0, True)
