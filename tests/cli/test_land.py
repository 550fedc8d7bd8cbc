from dataclasses import replace
from pathlib import Path

from pyspark.sql.types import StructType

from pulsar_lakehouse.pulsar.endpoint import Endpoint
from pulsar_lakehouse.tables.lake import Lake
from tests.cli.outcome import Command
from tests.lake import environment, own_topics
from tests.shop import TOPICS


def test_a_registered_schema_that_breaks_the_contract(
    lakehouse: Command, lake: Lake, endpoint: Endpoint, tmp_path: Path
) -> None:
    without_id = replace(TOPICS[0], fields=StructType(TOPICS[0].fields.fields[1:]))
    done = lakehouse("land", **environment(own_topics(lake.settings, endpoint, tmp_path, [without_id])))
    assert (done.code, done.line) == (78, "lakehouse: items: id is not registered, but declared as a required long")
