import time
from functools import partial
from threading import Barrier

import pytest
from pyspark.sql import SparkSession

from lakehouse.parallel import side_by_side


def test_results_come_in_the_order_of_the_calls(spark: SparkSession) -> None:
    assert side_by_side(spark, [partial(sorted, [2, 1]), partial(sorted, [4, 3])]) == [[1, 2], [3, 4]]


def test_if_one_fails_what_has_begun_still_ends(spark: SparkSession) -> None:
    both_began, done = Barrier(2), []

    def write() -> None:
        both_began.wait()
        time.sleep(0.2)
        done.append("written")

    def fail() -> None:
        both_began.wait()
        raise RuntimeError("power cut")

    with pytest.raises(RuntimeError, match="power cut"):
        side_by_side(spark, [fail, write])
    assert done == ["written"]


def test_the_jobs_are_those_of_the_caller(spark: SparkSession) -> None:
    context = spark.sparkContext
    context.setLocalProperty("test.caller", "this one")
    try:
        assert side_by_side(spark, [partial(context.getLocalProperty, "test.caller")]) == ["this one"]
    finally:
        context.setLocalProperty("test.caller", None)
