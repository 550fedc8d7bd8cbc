"""Kept classes of the JVM, and Spark's properties."""

import os
from pathlib import Path

import pytest
from pyspark.errors.utils import is_debugging_enabled
from pyspark.sql import SparkSession

from lakehouse import session

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
