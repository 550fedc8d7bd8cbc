"""Commands that borrow a real Spark, one after the other, each in a process of its own."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from pulsar_lakehouse.engine import control
from pulsar_lakehouse.settings import Engine, Settings
from tests.lake import environment

pytestmark = pytest.mark.spark

COMMAND = """
from pyspark.sql import functions as F
from pulsar_lakehouse.jobs.steps import open_lake
from pulsar_lakehouse.settings import load_settings
from pulsar_lakehouse.spark.session import SparkContext, stop_spark
with open_lake(load_settings(), writes=["silver.users"]) as lake:
    spark = lake.spark
    print(SparkContext._gateway.proc.pid)
    {body}
stop_spark(is_well=True)
"""

Run = Callable[[str], list[str]]


@pytest.fixture(scope="module")
def home(settings: Settings, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Settings]:
    home = settings.model_copy(update={"home": tmp_path_factory.mktemp("lent"), "engine": Engine()})
    control.start(home)
    yield home
    control.stop(home)


@pytest.fixture
def run(home: Settings, tmp_path: Path) -> Run:
    """Runs the body of a command, in which `spark` is the session, and returns what it prints after the JVM's pid."""

    def run(body: str) -> list[str]:
        code = COMMAND.format(body=body.strip().replace("\n", "\n    "))
        given = {**os.environ, **environment(home), "PYTHONPATH": str(tmp_path)}
        done = subprocess.run([sys.executable, "-c", code], env=given, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stderr
        pid, *lines = done.stdout.splitlines()
        found = control.state(home)
        assert found is not None
        assert (found["jvm"]["pid"], found["borrower"]) == (int(pid), None)
        return [pid, *lines]

    return run


def test_the_next_command_finds_nothing_of_the_one_before(run: Run) -> None:
    first, *before = run("""
spark.conf.set("spark.sql.shuffle.partitions", "77")
spark.range(3).cache().createOrReplaceTempView("left_behind")
print(spark.table("left_behind").count())
""")
    second, *after = run("""
print(spark.conf.get("spark.sql.shuffle.partitions") == "77", spark.catalog.tableExists("left_behind"))
print(len(spark.sparkContext._jsc.getPersistentRDDs()))
""")
    assert (first, before, after) == (second, ["3"], ["False False", "0"])


@pytest.mark.long
def test_a_table_that_was_made_anew_is_read_anew(run: Run, tmp_path: Path) -> None:
    table = tmp_path / "table"
    first = run(f"""
for number in range(3):
    spark.range(number).write.format("delta").mode("append").save("{table}")
""")
    shutil.rmtree(table)
    made = f'spark.range(1).select(F.lit("new").alias("name")).write.format("delta").save("{table}")'
    assert run(f'{made}\nprint(spark.read.format("delta").load("{table}").collect())') == [*first, "[Row(name='new')]"]


@pytest.mark.long
def test_workers_have_the_code_of_the_command(run: Run, tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text("def double(x): return 2 * x\n")
    body = "from own import double\nprint(spark.sparkContext.parallelize([3], 1).map(double).collect())"
    _, doubled = run(body)
    (tmp_path / "own.py").write_text("def double(x): return 2.0 * x\n")
    _, mended = run(body)
    assert (doubled, mended) == ("[6]", "[6.0]")


@pytest.mark.long
@pytest.mark.parametrize(
    "body",
    [
        'spark.readStream.format("rate").load().writeStream.format("noop").start()',
        "import threading, time; threading.Thread(target=spark.sparkContext.parallelize([60], 1).foreach,"
        " args=[time.sleep], daemon=True).start(); time.sleep(3)",
    ],
    ids=["a stream", "a job"],
)
def test_a_spark_that_still_works_is_not_lent_again(home: Settings, run: Run, body: str) -> None:
    with pytest.raises(TypeError):  # there is none
        run(body)
    found = control.state(home)
    assert found is not None
    assert found["jvm"] is None


@pytest.mark.long
def test_a_spark_that_is_killed_is_not_missed(run: Run) -> None:
    (first,) = run("pass")
    psutil.Process(int(first)).kill()
    (second,) = run("pass")
    assert first != second
