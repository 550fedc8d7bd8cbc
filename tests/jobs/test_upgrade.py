"""A project that the release before has made goes on: its tables, its checkpoints, and what waits in it.

`lake-0.1.0.tar.gz` has the tables and checkpoints that 0.1.0 made of some messages from a broker. Two rounds were run,
with a discarded order, a validation, a refresh, and a backfill that was killed. Users and orders of a third round have
landed only.
"""

import os
import subprocess
import tarfile
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from pulsar_lakehouse.jobs.steps import reconcile_all, run_landed
from pulsar_lakehouse.pulsar.endpoint import Endpoint
from pulsar_lakehouse.settings import Settings, load_settings
from pulsar_lakehouse.tables.lake import Lake
from tests.jobs.test_crashes import LAKEHOUSE
from tests.lake import environment, expected, land_literally, messages, own_home, own_topics, tables
from tests.messages import item, order, user
from tests.oracle import Oracle
from tests.oracle_lookups import Row

NEWS = [user(9, place=100), user(12, place=101), item(2, 4.5, when=30, place=102), order(20, user=9, place=103)]

DISCARDED = 9
"""The line of the order that was discarded."""
GONE = ("missing_entity", "missing_key", "missing_merged")
"""Columns of waiting orders that 0.1.0 had."""


SETTINGS = """
home = ".lakehouse"
warehouse = ""
checkpoints = ""
[pulsar]
namespace = "public/lakehouse"
partitions = 2
tls_validate_hostname = true
broker_port = 0
web_port = 0
memory = "1g"
[spark]
master = "local[2]"
memory = "2g"
[run]
retries = 5
retry_delay = 10.0
broker_timeout = 60.0
max_bytes_per_batch = 1048576
[airflow]
port = 0
parallelism = 2
[serve]
host = "127.0.0.1"
port = 0
sessions_per_user = 20
max_queries = 4
query_timeout = 600
max_result = "64m"
"""
"""A `lakehouse.toml` with all settings that 0.1.0 had, but for addresses, certificates and secrets."""


@pytest.fixture
def project(settings: Settings, tmp_path: Path) -> Settings:
    """The project as if it had been left today: maintenance keeps what a stream has not read for some days only."""
    with tarfile.open(Path(__file__).with_name("lake-0.1.0.tar.gz")) as archive:
        archive.extractall(tmp_path, filter="data")
    for path in tmp_path.rglob("*"):
        os.utime(path)
    return own_home(settings, tmp_path)


def is_discarded(row: Row) -> bool:
    return bool(row["line_item_id"] == DISCARDED)


def test_a_lake_of_the_release_before_goes_on(
    spark: SparkSession, project: Settings, capsys: pytest.CaptureFixture[str]
) -> None:
    oracle = Oracle().run(messages(project))
    oracle.waiting = [row for row in oracle.waiting if not is_discarded(row)]
    land_literally(Lake(spark, project), NEWS)
    list(run_landed(Lake(spark, project)))
    assert "checkpoint" not in capsys.readouterr().err
    held = tables(project)
    held["waiting"] = [{name: row[name] for name in row if name not in GONE} for row in held["waiting"]]
    assert [is_discarded(row) for row in held.pop("discarded")] == [True]
    wanted = expected(oracle.run(NEWS))
    assert held == {name: wanted[name] for name in held}
    assert [each.problems for each in reconcile_all(Lake(spark, project)) if not each.holds] == []


COMMANDS = """
plan
merge
enrich
refresh
validate
status
state
state users:9
quarantine inspect
snapshot create before
backfill --because users:9
quarantine release --all
enrich
snapshot restore before
merge
enrich
snapshot drop before
purge
rebuild gold.enriched_orders --approve
maintain
forget users:9 --approve --now
"""


@pytest.mark.long
def test_each_command_works_on_it(lake: Lake, project: Settings, endpoint: Endpoint) -> None:
    land_literally(Lake(lake.spark, project), NEWS)
    own = own_topics(lake.settings, endpoint, project.home)
    for command in COMMANDS.strip().splitlines():
        given = {**os.environ, **environment(own)}
        done = subprocess.run([LAKEHOUSE, *command.split()], env=given, cwd=own.home, capture_output=True, text=True)
        assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
    assert [each.problems for each in reconcile_all(Lake(lake.spark, project)) if not each.holds] == []
    held, wanted = tables(project), expected(Oracle().run(messages(project)))
    held["waiting"] = [{name: row[name] for name in row if name not in GONE} for row in held["waiting"]]
    assert held == {name: wanted[name] for name in held}


def test_the_settings_of_the_release_before_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "lakehouse.toml").write_text(SETTINGS)
    monkeypatch.chdir(tmp_path)
    loaded = load_settings()
    assert (loaded.home, loaded.spark.master, loaded.run.max_bytes_per_batch) == (
        tmp_path / ".lakehouse",
        "local[2]",
        2**20,
    )
