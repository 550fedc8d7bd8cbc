"""Kept classes of the JVM, and Spark's properties."""

import os
import sys
from pathlib import Path

import pyspark
import pytest
from pyspark.errors.utils import is_debugging_enabled
from pyspark.sql import SparkSession

from lakehouse import session
from lakehouse.settings import Settings

NEVER = 2**31 - 1
"""No process has this number."""


def test_drafts_of_killed_processes_are_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "ARCHIVES", tmp_path)
    for pid in (NEVER, os.getpid()):
        (tmp_path / f"spark-0123456789ab.{pid}").touch()
    session._class_archive([], keep=True)
    assert [each.name for each in tmp_path.iterdir()] == [f"spark-0123456789ab.{os.getpid()}"]


def test_column_expressions_are_not_told_where_they_were_made(spark: SparkSession) -> None:
    """Spark takes the name of a property that it does not have without a word."""
    assert not is_debugging_enabled()
    assert spark.conf.get("spark.sql.dataFrameQueryContext.enabled") == "false"


def test_workers_have_what_the_source_needs_and_pyspark_from_its_package(spark: SparkSession) -> None:
    """Spark's own path has PySpark in a zip file, without what Python has compiled."""

    def loaded(_: int) -> tuple[str | None, bool, bool]:
        return sys.modules["pyspark"].__file__, "bronze.pulsar.source" in sys.modules, "pulsar" in sys.modules

    assert spark.sparkContext.parallelize([0], 1).map(loaded).collect() == [(pyspark.__file__, True, False)]


@pytest.mark.parametrize(("master", "are_sent"), [("local[2]", False), ("spark://host:7077", True)])
def test_jars_are_sent_to_executors_only(settings: Settings, master: str, are_sent: bool) -> None:
    spark = settings.spark.model_copy(update={"master": master})
    conf = session.spark_conf(settings.model_copy(update={"spark": spark}), keep_classes=False)
    assert ("spark.jars" in conf) == are_sent
