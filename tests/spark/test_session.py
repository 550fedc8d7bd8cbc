"""Spark's session: its properties, its processes, and how it ends."""

import os
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pyspark
import pytest
from pyspark import SparkContext
from pyspark.errors.utils import is_debugging_enabled
from pyspark.sql import SparkSession

from pulsar_lakehouse.errors import LakehouseError
from pulsar_lakehouse.settings import Settings, load_settings
from pulsar_lakehouse.spark import session
from tests.conftest import SECRET


def test_column_expressions_are_not_told_where_they_were_made(spark: SparkSession) -> None:
    """Spark silently accepts a property that it does not know."""
    assert not is_debugging_enabled()
    assert spark.conf.get("spark.sql.dataFrameQueryContext.enabled") == "false"


def test_workers_have_pyspark_from_its_package(spark: SparkSession) -> None:
    """Spark's own Python path has it in a zip file, without compiled modules."""
    found = spark.sparkContext.parallelize([0], 1).map(lambda _: sys.modules["pyspark"].__file__)
    assert found.collect() == [pyspark.__file__]


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere there is no /proc")
def test_no_secret_is_to_be_seen_of_the_processes_of_spark(spark: SparkSession) -> None:
    """Spark was started with a secret in the environment, and one in its conf."""
    workers = spark.sparkContext.parallelize([0], 1).map(lambda _: (os.getpid(), os.getppid())).collect()[0]
    gateway = spark.sparkContext._gateway
    assert gateway is not None
    processes = [gateway.proc.pid, *workers]
    seen = [Path(f"/proc/{pid}/{what}").read_bytes() for pid in processes for what in ("environ", "cmdline")]
    assert [b"spark" in each for each in seen] == [True] * 6
    assert [SECRET.encode() in each for each in seen] == [False] * 6
    assert spark.sparkContext._jsc.hadoopConfiguration().get("fs.s3a.secret.key") == SECRET


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere, PySpark's own daemon forks the workers")
def test_workers_begin_with_what_the_source_needs_but_draw_their_own_numbers(spark: SparkSession) -> None:
    def loaded_and_drawn(_: int) -> tuple[set[str], int, float]:
        time.sleep(1)  # otherwise one worker could run both tasks
        return {"pulsar_lakehouse.bronze.pulsar.source", "pandas"} & sys.modules.keys(), os.getpid(), np.random.rand()

    both = spark.sparkContext.parallelize([0, 1], 2).map(loaded_and_drawn).collect()
    assert [loaded for loaded, *_ in both] == 2 * [{"pulsar_lakehouse.bronze.pulsar.source", "pandas"}]
    assert len({pid for _, pid, _ in both}) == len({number for *_, number in both}) == 2


@pytest.mark.parametrize(
    ("master", "conf", "is_elsewhere"),
    [
        ("local[2]", {}, False),
        ("local-cluster[2,1,1024]", {}, True),
        ("spark://host:7077", {}, True),
        ("local[2]", {"spark.master": "spark://host:7077"}, True),
    ],
)
def test_executors_elsewhere_are_sent_jars_and_have_files_of_their_own(
    settings: Settings, master: str, conf: dict[str, str], is_elsewhere: bool
) -> None:
    spark = settings.spark.model_copy(update={"master": master, "conf": conf})
    found = session.spark_conf(settings.model_copy(update={"spark": spark}), keep_classes=False)
    assert ("spark.jars" in found, "spark.hadoop.fs.file.impl" not in found) == (is_elsewhere, is_elsewhere)


def test_ones_own_jars_are_beside_ours(settings: Settings) -> None:
    spark = settings.spark.model_copy(update={"conf": {session.CLASS_PATH: "/own.jar"}})
    found = session.spark_conf(settings.model_copy(update={"spark": spark}), keep_classes=False)[session.CLASS_PATH]
    assert "delta-spark" in found
    assert found.endswith(":/own.jar")


def test_only_what_spark_has_put_there_leaves_the_path_of_python() -> None:
    spark = (
        "/spark/python/lib/pyspark.zip:/spark/python/lib/py4j-0.10.9.9-src.zip:/spark/jars/spark-core_2.13-4.2.0.jar"
    )
    python = session.submit_environment(load_settings())["PYSPARK_PYTHON"]
    show = [python, "-c", "import os; print(os.environ['PYTHONPATH'])"]
    for given, left in ((f"{spark}:/own path:/other", "/own path:/other"), (spark, "")):
        assert subprocess.check_output(show, env={"PYTHONPATH": given}, text=True) == f"{left}\n"


@pytest.mark.parametrize(
    ("command", "told"),
    [
        ("exit 3", "Spark ran out of memory, and its process has ended"),
        ("kill -9 $$", "Spark's process was killed by SIGKILL"),
    ],
)
def test_how_spark_has_ended_while_it_started(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str, told: str
) -> None:
    submit = tmp_path / "bin" / "spark-submit"
    submit.parent.mkdir()
    submit.write_text(f"#!/bin/sh\n{command}\n")
    submit.chmod(0o700)
    monkeypatch.setattr(session, "SPARK_HOME", str(tmp_path))
    monkeypatch.setattr(SparkContext, "_active_spark_context", None)
    with pytest.raises(LakehouseError, match=f"^{told}"):
        session.start_spark(settings)


@pytest.mark.parametrize(
    ("command", "line"),
    [
        ("kill -9 $$", "Spark's process was killed by SIGKILL, as the kernel does when the machine has no memory left"),
        ("kill $$", "Spark's process has ended by SIGTERM"),
        ("exit 3", "Spark ran out of memory, and its process has ended"),
        ("exit 1", "Spark's process has ended with exit code 1"),
        ("sleep 60", None),
    ],
)
def test_how_spark_has_ended(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, command: str, line: str | None
) -> None:
    with subprocess.Popen(["sh", "-c", f"exec 2>&-; {command}"]) as process:
        monkeypatch.setattr(SparkContext, "_gateway", SimpleNamespace(proc=process))
        where = f"LAKEHOUSE_SPARK__MEMORY is 3g; see Spark's log, {settings.home}/logs/spark.log"
        assert session.end_of_spark(settings, within=0.5 if line is None else 10) == (line and f"{line}: {where}")
        process.kill()
