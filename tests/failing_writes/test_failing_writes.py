"""A few calls that fail, in all kinds of processes; `make failing-writes` lets far more of them fail."""

import os
import random
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from pulsar_lakehouse.settings import Settings
from pulsar_lakehouse.tables.declared import Table
from pulsar_lakehouse.tables.lake import Lake
from tests.failing_writes.power_cut import make_disk, names_in
from tests.failing_writes.run import Fault, Trial, World
from tests.failing_writes.shim import NO_COMPILER, Failure, Shim, has_compiler
from tests.lake import own_home, read

pytestmark = pytest.mark.skipif(not has_compiler(), reason=NO_COMPILER)

PYTHON = """
import os, sys
from pathlib import Path
folder = Path(sys.argv[1])
with (folder / "old").open("wb") as file:
    file.write(b"text")
    os.fsync(file.fileno())
    file.truncate(2)
(folder / "old").rename(folder / "new")
(folder / "new").unlink()
"""
RUST = """
import sys, obstore
from obstore.store import LocalStore
obstore.put(LocalStore(sys.argv[1]), "new", b"text", mode="create")
"""


def run(code: str, shim: Shim, folder: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", code, str(folder)]
    return subprocess.run(command, env=os.environ | shim.environment, capture_output=True, text=True)


def test_calls_are_counted(tmp_path: Path) -> None:
    under, elsewhere = tmp_path / "under", tmp_path / "elsewhere"
    under.mkdir()
    elsewhere.mkdir()
    shim = Shim(tmp_path, under)
    seen = []
    for code, folder in ((PYTHON, under), (RUST, under), (PYTHON, elsewhere)):
        with shim.failing():
            run(code, shim, folder)
        seen.append({name: count for name, count in shim.counts.items() if count})
    assert seen == [
        {"open": 1, "write": 1, "sync": 1, "truncate": 1, "rename": 1, "unlink": 1},
        {"open": 1, "write": 1, "link": 1, "unlink": 1},
        {},
    ]


@pytest.mark.parametrize(
    ("failure", "at", "failed", "told", "left"),
    [
        (Failure.ERROR, 2, "write new#1", "Input/output error", []),
        (Failure.FULL, 3, "link new", "No space left on device", []),
        (Failure.INTERRUPTED, 1, "open new#1", "", ["new"]),
        (Failure.SHORT, 1, "write new#1", "", ["new"]),
        (Failure.CRASH, 3, "link new", "Input/output error", ["new#1"]),
        (Failure.KILL, 3, "link new", "", ["new#1"]),
    ],
)
def test_a_call_fails(tmp_path: Path, failure: Failure, at: int, failed: str, told: str, left: list[str]) -> None:
    under = tmp_path / "under"
    under.mkdir()
    shim = Shim(tmp_path, under)
    with shim.failing(failure, at):
        done = run(RUST, shim, under)
    assert (shim.failed.replace(f"{under}/", ""), told in done.stderr) == (failed, True)
    assert (sorted(file.name for file in under.iterdir()), done.returncode == 0) == (left, left == ["new"])


def test_each_call_without_spark_may_fail(tmp_path: Path) -> None:
    (tmp_path / "under").mkdir()
    shim = Shim(tmp_path, tmp_path / "under")
    command = [sys.executable, "-m", f"{__package__}.direct"]
    given = os.environ | shim.environment | {"RUST_BACKTRACE": "0"}
    done = subprocess.run(command, env=given, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 500


def test_power_may_be_lost_at_each_call_without_spark(tmp_path: Path) -> None:
    (tmp_path / "under").mkdir()
    shim = Shim(tmp_path, tmp_path / "under")
    command = [sys.executable, "-m", f"{__package__}.direct", "1"]
    done = subprocess.run(command, env=os.environ | shim.environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout.splitlines()[-1]) > 100


@pytest.mark.parametrize(
    "failure", [Failure.CRASH, *(pytest.param(each, marks=pytest.mark.long) for each in (Failure.ERROR, Failure.FULL))]
)
def test_a_commit_of_spark_is_whole_or_not_there(lake: Lake, tmp_path: Path, shim: Shim, failure: Failure) -> None:
    own = Lake(lake.spark, own_home(lake.settings, tmp_path))
    own.create(Table(name="silver.boats", columns="id BIGINT"))
    boats, row = own.table("silver.boats"), lake.spark.range(1)
    with shim.failing():
        boats.append(row)
    calls, rows = shim.calls, 1
    for at in range(1, calls + 1, 5):  # each append takes Spark a second
        with shim.failing(failure, at), suppress(Py4JJavaError, PySparkException):
            boats.append(row)
            rows += 1
        held = len(read(own.settings, "silver.boats"))
        assert rows <= held <= at + 1
        rows = held
    boats.append(row)
    assert len(read(own.settings, "silver.boats")) == rows + 1


def test_power_may_be_lost_at_each_call_of_commits_of_spark(lake: Lake, tmp_path: Path, shim: Shim) -> None:
    own, draw = Lake(lake.spark, own_home(lake.settings, tmp_path / "home")), random.Random(1)
    properties = {"delta.enableChangeDataFeed": "true", "delta.checkpointInterval": "2"}
    columns, partitions = "id BIGINT, harbor BIGINT", ("harbor",)
    own.create(Table(name="silver.boats", columns=columns, partition_by=partitions, properties=properties))
    boats, before = own.table("silver.boats"), names_in(own.settings.home)
    with shim.failing(notes=True):
        boats.append(lake.spark.range(3).selectExpr("id", "id AS harbor"))
        boats.delta.delete("id = 0")
    held = []
    for done in range(len(shim.notes.read_text().splitlines()) + 1):
        cut = own_home(own.settings, tmp_path / f"{done}")
        make_disk(shim, own.settings.home, before, cut.home, draw, done=done)
        held.append(len(read(cut, "silver.boats")))
    assert (sorted(held, key=[0, 3, 2].index), held[-1]) == (held, 2)


@pytest.mark.long
def test_a_step_is_done_again_after_a_crash_of_the_jvm(spark: SparkSession, settings: Settings, shim: Shim) -> None:
    run = settings.run.model_copy(update={"retries": 0, "retry_delay": 0})
    world = World(spark, settings.model_copy(update={"run": run}), shim)
    world.prepare(["merge"])
    crash = Fault(Failure.CRASH, sum(world.counts["merge"].values()) // 2)
    outcome = world.run(Trial(step="merge", faults=[crash]))
    assert (outcome.wrong, [bool(call) for call in outcome.calls]) == ("", [True])


@pytest.mark.spark
@pytest.mark.long
def test_each_step_is_done_again_after_calls_have_failed() -> None:
    command = [sys.executable, "-m", __package__, "--seed", "2", "--times", "17", "--commands", "3"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
