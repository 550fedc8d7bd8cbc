"""Values are compared whatever is in them, maps too."""

from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from pulsar_lakehouse.spark.comparing import is_same


@pytest.mark.parametrize(
    ("left", "right", "same"),
    [
        ((1, {"a": [{"x": 1}]}), (1, {"a": [{"x": 1}]}), True),
        ((1, {"a": [{"x": 1}]}), (1, {"a": [{"x": 2}]}), False),
        ((1, {"a": None}), (1, {}), False),
        ((1, None), (1, {}), False),
        ((None, None), None, False),
        (None, None, True),
    ],
)
def test_maps_are_compared_by_their_entries(spark: SparkSession, left: Any, right: Any, same: bool) -> None:
    rows = spark.createDataFrame(
        [(left, right)], ", ".join(f"{side} STRUCT<a: INT, b: MAP<STRING, ARRAY<MAP<STRING, INT>>>>" for side in "lr")
    )
    [found] = rows.select(is_same(F.col("l"), F.col("r"), rows.schema["l"].dataType)).collect()
    assert tuple(found) == (same,)
