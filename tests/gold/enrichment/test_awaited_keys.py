import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from pulsar_lakehouse.gold.enrichment.declaration import MISSING, awaited_keys
from tests.awaited import AWAITED, Lacking


@pytest.mark.parametrize(("lacking", "awaited"), AWAITED)
def test_a_fact_awaits_a_key_and_those_that_led_to_it(
    spark: SparkSession, lacking: Lacking, awaited: list[tuple[str, str]]
) -> None:
    missing = spark.createDataFrame([([tuple(lacking)],)], f"missing {MISSING}")
    [[keys]] = missing.select(awaited_keys(F.col("missing")[0])).collect()
    assert [tuple(key) for key in keys] == awaited
