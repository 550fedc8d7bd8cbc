"""From topics to gold with tables and checkpoints in an object store: they hold what the oracle says."""

import json
import os
import random
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import obstore
import psutil
import pyarrow as pa
import pytest
from deltalake import write_deltalake
from impala.dbapi import connect

from pulsar_lakehouse.contracts.topics import Topic
from pulsar_lakehouse.domains.shop.workload import Workload
from pulsar_lakehouse.errors import BusyError
from pulsar_lakehouse.inspection.query import query
from pulsar_lakehouse.inspection.table_status import table_statuses
from pulsar_lakehouse.jobs.maintenance import maintain
from pulsar_lakehouse.leases.claims import GIVE_UP
from pulsar_lakehouse.local import airflow
from pulsar_lakehouse.pulsar.endpoint import Endpoint
from pulsar_lakehouse.pulsar.produce import Message, produce
from pulsar_lakehouse.settings import Settings
from pulsar_lakehouse.storage import folder, table_options
from pulsar_lakehouse.tables.stored import is_stored, stored_table
from tests import airflow_api
from tests.airflow_api import RUNS, Api
from tests.contracts.test_sources import DECLARED
from tests.jobs.test_crashes import is_free, wait_until
from tests.jobs.test_forget import HIS, OTHERS, ZAPHOD, holding, maintain_when_due, send
from tests.lake import environment, expected, messages, own_topics, read, tables
from tests.oracle import Oracle
from tests.pipeline.projects import project
from tests.s3 import BUCKET, Server, Unreliable, in_store
from tests.shop import TOPICS, WRITTEN
from tests.test_docs import ROOT, blocks

LAKEHOUSE = Path(sys.prefix) / "bin" / "lakehouse"
MESSY = Workload(
    users=300, orders=3_000, missing_users=0.05, late_users=0.2, deleted_users=0.1, duplicates=0.1, malformed=0.1
)
SMALL_BATCHES = {"LAKEHOUSE_RUN__MAX_BYTES_PER_BATCH": str(2**20), "LAKEHOUSE_RUN__RETRY_DELAY": "2"}


def lake_of(settings: Settings, endpoint: Endpoint, url: str, home: Path) -> Settings:
    project = own_topics(in_store(settings, url, home.name), endpoint, home)
    produce([(topic, phase(topic.name)) for phase in (MESSY.first, MESSY.late) for topic in TOPICS], endpoint, project)
    return project


@contextmanager
def running(project: Settings, command: str = "run") -> Iterator[subprocess.Popen[bytes]]:
    with (project.home / "run.log").open("wb") as log:
        given = {**os.environ, **environment(project), **SMALL_BATCHES}
        process = subprocess.Popen([LAKEHOUSE, *command.split()], env=given, stdout=log, stderr=subprocess.STDOUT)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def run(project: Settings) -> str:
    """What a run shows, which must succeed."""
    with running(project) as process:
        code, shown = process.wait(400), (project.home / "run.log").read_text()
    assert (code, shown.count("holds")) == (0, 3), shown
    return shown


def wait_for(condition: Callable[[], bool], process: subprocess.Popen[bytes]) -> None:
    while not condition():
        assert process.poll() is None, "the run has ended"
        time.sleep(0.2)


def has_version(project: Settings, name: str, version: int) -> Callable[[], bool]:
    return lambda: is_stored(project, name) and stored_table(project, name).version() >= version


@pytest.mark.s3
@pytest.mark.spark
def test_all_that_a_run_writes_is_in_the_store(
    settings: Settings, endpoint: Endpoint, store: Server, tmp_path: Path
) -> None:
    project = lake_of(settings, endpoint, store.url, tmp_path)
    run(project)
    assert tables(project) == expected(Oracle().run(messages(project)))
    [(rows,)] = query(project, "SELECT count(*) FROM gold.enriched_orders").fetchall()
    assert {status.name: (status.rows, status.lag) for status in table_statuses(project)}["gold.enriched_orders"] == (
        rows,
        0,
    )
    assert [each.table for each in maintain(project) if each.failed or each.busy] == []
    assert not (project.home / "warehouse").exists()
    assert not (project.home / "checkpoints").exists()


@pytest.mark.s3
@pytest.mark.spark
def test_several_topics_land_in_one_table_of_the_store(
    settings: Settings, endpoint: Endpoint, store: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`orders-us` comes after the first run. Order 1 is in both."""
    declared, _ = blocks(ROOT / "docs" / "several-topics.md", "python")
    monkeypatch.setenv("LAKEHOUSE_DECLARATIONS", str(project(tmp_path, orders=declared)))
    eu, us = (
        Topic("orders", "id BIGINT NOT NULL, cents BIGINT, orderedAt TIMESTAMP_MILLIS NOT NULL", topic=f"orders-{name}")
        for name in ("eu", "us")
    )
    own = own_topics(in_store(settings, store.url, tmp_path.name), endpoint, tmp_path, [eu])
    for topic, ids in ((eu, (1, 2)), (us, (1, 3))):
        sent = [Message("", json.dumps({"id": id, "cents": 1, "orderedAt": 0}).encode(), 0) for id in ids]
        produce([(topic, sent)], endpoint, own)
        with running(own) as process:
            assert process.wait(400) == 0, (own.home / "run.log").read_text()
    orders = query(own, "SELECT id, region FROM gold.enriched_orders ORDER BY id").fetchall()
    assert orders == [(1, "eu"), (2, "eu"), (3, "us")]


def test_two_that_append_at_once_both_do(settings: Settings, store: Server, tmp_path: Path) -> None:
    project = in_store(settings, store.url, tmp_path.name)

    def append(writer: str) -> None:
        for n in range(10):
            rows, path = pa.table({"writer": [writer], "n": [n]}), project.table_path("gold.notes")
            write_deltalake(path, rows, mode="append", storage_options=table_options(project))

    append("a")
    writers = [threading.Thread(target=append, args=[name]) for name in ("b", "c")]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    held = query(project, "SELECT writer, count(*), count(DISTINCT n) FROM gold.notes GROUP BY 1 ORDER BY 1").fetchall()
    assert held == [("a", 10, 10), ("b", 10, 10), ("c", 10, 10)]


COMMANDS = """
plan
status
lineage
metrics
reconcile
validate
validate --new
refresh
refresh --full
topics create
publish
quarantine inspect
state
state users:1
trace 1
snapshot create before
backfill --because items:1
backfill --from 2026-01-01 --to 2027-12-31
quarantine release --all
enrich
quarantine retry
snapshot list
snapshot diff before
snapshot restore before
run
snapshot drop before
rebuild silver.users --approve
run
purge
maintain
reconcile
"""


@pytest.mark.spark
@pytest.mark.s3
def test_one_command_after_the_other(settings: Settings, endpoint: Endpoint, store: Server, tmp_path: Path) -> None:
    project = lake_of(settings, endpoint, store.url, tmp_path)
    run(project)
    for command in COMMANDS.strip().splitlines():
        do(project, command)
    assert tables(project) == expected(Oracle().run(messages(project)))
    [(user,)] = query(project, "SELECT user.id FROM gold.enriched_orders LIMIT 1").fetchall()
    for command in (f"forget users:{user} --approve --now", "reconcile", "run"):
        do(project, command)
    held = query(project, f"SELECT count(*) FROM gold.enriched_orders WHERE user.id = {user}").fetchall()
    assert held == [(0,)]
    waiting = len(read(project, "quarantine.waiting_orders"))
    for command in ("quarantine discard --all", "enrich", "reconcile"):
        do(project, command)
    assert waiting > 0
    assert [len(read(project, f"quarantine.{kind}_orders")) for kind in ("waiting", "discarded")] == [0, waiting]
    assert served(project, "SELECT count(*) FROM gold.enriched_orders") == [
        (len(read(project, "gold.enriched_orders")),)
    ]
    assert not (project.home / "warehouse").exists()
    assert not (project.home / "checkpoints").exists()


@pytest.mark.spark
@pytest.mark.s3
def test_a_person_leaves_the_store(
    settings: Settings, endpoint: Endpoint, store: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = own_topics(in_store(settings, store.url, tmp_path.name), endpoint, tmp_path)
    objects = store.folder / "objects" / BUCKET / tmp_path.name
    send(project, endpoint, [each for each in (*HIS, *OTHERS) if each.key])
    for command in ("run", "snapshot create before", f"backfill --because users:{ZAPHOD}", "refresh", "validate"):
        do(project, command)
    do(project, f"forget users:{ZAPHOD} --approve")
    assert list(holding(project.home)) == []
    assert {"bronze", "silver", "gold", "quarantine"} <= {name.split("/")[0] for name in holding(objects)}
    [certificate] = (project.home / "erasures").iterdir()
    maintain_when_due(project, certificate, monkeypatch)
    assert list(holding(objects)) == []
    assert tables(project) == expected(Oracle().run(messages(project)))


def do(project: Settings, command: str) -> None:
    given = {**os.environ, **environment(project), **SMALL_BATCHES}
    done = subprocess.run([LAKEHOUSE, *command.split()], env=given, capture_output=True, text=True, timeout=400)
    assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"


def served(project: Settings, sql: str) -> list[tuple[object, ...]]:
    """The rows that `lakehouse serve` answers with."""
    users = {"ada": "lovelace-1815"}
    given = {**os.environ, **environment(project, LAKEHOUSE_SERVE__USERS=json.dumps(users))}
    with subprocess.Popen([LAKEHOUSE, "serve"], env=given, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            (*_, port) = re.findall(r":(\d+)", server.stdout.readline())
            own = connect(port=int(port), auth_mechanism="PLAIN", user="ada", password=users["ada"])
            with closing(own) as connection, closing(connection.cursor()) as cursor:
                cursor.execute(sql)
                return list(cursor.fetchall())
        finally:
            server.terminate()


@pytest.mark.airflow
@pytest.mark.spark
@pytest.mark.s3
def test_a_run_of_airflow(
    settings: Settings, endpoint: Endpoint, store: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = lake_of(settings, endpoint, store.url, tmp_path)
    for name, value in environment(project, LAKEHOUSE_SPARK__MEMORY="1g").items():
        monkeypatch.setenv(name, value)
    try:
        api = Api(airflow.start(project))
        airflow_api.wait_until(api.has_dags)
        airflow_api.wait_until(api.scheduled)
        run = f"{RUNS}/{api.scheduled()['dag_run_id']}"
        airflow_api.wait_until(lambda: api.has_ended(run))
        api.switch("pipeline", on=False)
        tasks = api.call("GET", f"{run}/taskInstances")["task_instances"]
        states = {task["task_id"]: task["state"] for task in tasks}
        assert api.call("GET", run)["state"] == "success", states
        assert states["run"] == "success"
    finally:
        airflow.stop(project)
    oracle = Oracle().run(messages(project))
    assert tables(project) == expected(oracle)
    assert sum(row["orders"] for row in read(project, "gold.revenue_by_hour")) == len(oracle.gold)
    assert not (project.home / "warehouse").exists()
    assert not (project.home / "checkpoints").exists()


@pytest.mark.spark
@pytest.mark.s3
def test_runs_that_are_killed(settings: Settings, endpoint: Endpoint, store: Server, tmp_path: Path) -> None:
    project = lake_of(settings, endpoint, store.url, tmp_path)
    for moment in (has_version(project, "bronze.orders", 1), has_version(project, "gold.enriched_orders", 1)):
        with running(project) as process:
            wait_for(moment, process)
        wait_until(lambda: is_free(project, WRITTEN))
    run(project)
    assert tables(project) == expected(Oracle().run(messages(project)))


@pytest.mark.spark
@pytest.mark.s3
def test_a_store_that_dies_and_returns(settings: Settings, endpoint: Endpoint, store: Server, tmp_path: Path) -> None:
    project = lake_of(settings, endpoint, store.url, tmp_path)
    with running(project) as process:
        wait_for(has_version(project, "bronze.orders", 0), process)
        store.kill()
        time.sleep(8)
        store.start()
        code = process.wait(400)
    shown = (project.home / "run.log").read_text()
    assert code == 0 or "the object store" in shown, shown
    assert "Traceback" not in shown
    run(project)
    assert tables(project) == expected(Oracle().run(messages(project)))


@pytest.mark.spark
@pytest.mark.s3
def test_a_store_that_is_away_for_long(settings: Settings, endpoint: Endpoint, store: Server, tmp_path: Path) -> None:
    project = lake_of(settings, endpoint, store.url, tmp_path)
    with running(project, "run --every 1s") as process:
        wait_for(has_version(project, "gold.enriched_orders", 0), process)
        store.kill()
        try:
            code = process.wait(GIVE_UP + 60)
        finally:
            store.start()
    shown = (project.home / "run.log").read_text()
    assert (code, "Traceback" in shown) == (1, False), shown
    assert f"could not be renewed for {GIVE_UP:g} s" in shown or "the object store" in shown, shown
    run(project)
    assert tables(project) == expected(Oracle().run(messages(project)))


@pytest.mark.spark
@pytest.mark.s3
def test_a_machine_that_sleeps_loses_its_tables_to_another(
    settings: Settings, endpoint: Endpoint, store: Server, tmp_path: Path
) -> None:
    project = own_topics(in_store(settings, store.url, tmp_path.name), endpoint, tmp_path)
    other = project.model_copy(update={"home": tmp_path / "other"})
    other.home.mkdir()
    sent = produce([(topic, MESSY.first(topic.name)) for topic in TOPICS], endpoint, project)
    with running(project, "run --every 1s") as process:
        wait_for(lambda: has_enriched(project, sum(sent.values())), process)
        first = messages(project)
        with running(other) as refused:
            assert refused.wait(60) == BusyError.exit_code
        assert f"is being written by pid {process.pid}" in (other.home / "run.log").read_text()
        both = [psutil.Process(process.pid), *psutil.Process(process.pid).children(recursive=True)]
        for each in both:
            each.suspend()
        try:
            produce([(topic, MESSY.late(topic.name)) for topic in TOPICS], endpoint, project)
            run(other)
        finally:
            for each in both:
                with suppress(psutil.NoSuchProcess):  # the first one that wakes ends the others
                    each.resume()
        assert process.wait(60) != 0
    shown = (project.home / "run.log").read_text()
    assert ("the right to write" in shown, "Traceback" in shown) == (True, False), shown
    known = set(first)
    then = [message for message in messages(other) if message not in known]
    assert tables(other) == expected(Oracle().run(first).run(then))


def has_enriched(project: Settings, sent: int) -> bool:
    landed = messages(project)
    return len(landed) == sent and tables(project) == expected(Oracle().run(landed))


@pytest.mark.spark
@pytest.mark.s3
def test_a_store_that_is_slow_and_fails(settings: Settings, endpoint: Endpoint, store: Server, tmp_path: Path) -> None:
    unreliable = Unreliable(store, random.Random(1))
    threading.Thread(target=unreliable.serve_forever, daemon=True).start()
    project = lake_of(settings, endpoint, unreliable.url, tmp_path)
    run(project)
    assert unreliable.failed > 20
    sound = in_store(project, store.url, tmp_path.name)
    assert tables(sound) == expected(Oracle().run(messages(sound)))
    unreliable.shutdown()


APPEND = """
import sys
from pulsar_lakehouse.tables.declared import Table

from pulsar_lakehouse.settings import load_settings
from pulsar_lakehouse.spark.session import start_spark, stop_spark
settings, writer = load_settings(), sys.argv[1]
spark = start_spark(settings)
create_table(spark, settings, Table(name="gold.notes", columns="writer STRING, n INT"))
for n in range(20):
    append(spark.createDataFrame([(writer, n)], "writer STRING, n INT"), settings, "gold.notes")
stop_spark()
"""


@pytest.mark.spark
@pytest.mark.s3
def test_two_spark_applications_that_append_at_once_both_do(settings: Settings, store: Server, tmp_path: Path) -> None:
    project = in_store(settings, store.url, tmp_path.name)
    writers = []
    for name in ("a", "b"):
        home = tmp_path / name
        home.mkdir()
        given = {**os.environ, **environment(project), "LAKEHOUSE_HOME": str(home)}
        writers.append(subprocess.Popen([sys.executable, "-c", APPEND, name], env=given))
    assert [writer.wait(300) for writer in writers] == [0, 0]
    held = query(project, "SELECT writer, count(*), count(DISTINCT n) FROM gold.notes GROUP BY 1 ORDER BY 1").fetchall()
    assert held == [("a", 20, 20), ("b", 20, 20)]


LIST = """
import sys
from pulsar_lakehouse.settings import load_settings
from pulsar_lakehouse.spark.session import start_spark, stop_spark
spark = start_spark(load_settings())
conf, path = spark._jsc.hadoopConfiguration(), spark._jvm.org.apache.hadoop.fs.Path
files = spark._jvm.lakehouse.StoreLog(conf).listFrom(path(sys.argv[1]), conf)
while files.hasNext():
    print(files.next().getPath().getName())
stop_spark()
"""


@pytest.mark.spark
@pytest.mark.s3
def test_a_log_is_listed_from_a_version_on(settings: Settings, store: Server, tmp_path: Path) -> None:
    project = in_store(settings, store.url, tmp_path.name)
    log = project.table_path("gold.notes") + "/_delta_log"
    for name in [f"{version:020d}.json" for version in range(2_500)]:  # a store names 1,000 at a time
        obstore.put(folder(project, log), name, b"{}")
    for name in (f"{1_198:020d}.checkpoint.parquet", f"{2_498:020d}.crc", "_last_checkpoint", "_sidecars/a.parquet"):
        obstore.put(folder(project, log), name, b"{}")

    def listed(path: str) -> list[str]:
        given = {**os.environ, **environment(project), "LAKEHOUSE_HOME": str(tmp_path)}
        return subprocess.check_output([sys.executable, "-c", LIST, path], env=given, text=True).split()

    assert listed(f"{log}/{2_498:020d}.") == [
        "00000000000000002498.crc",
        "00000000000000002498.json",
        "00000000000000002499.json",
        "_last_checkpoint",
        "_sidecars",
    ]
    assert len(listed(f"{log}/{1_198:020d}.")) == 1_302 + 4


@pytest.mark.s3
def test_files_in_the_store_are_a_source(settings: Settings, store: Server, tmp_path: Path) -> None:
    """Spark appends what has landed, as tables in a store are its own."""
    project_of = in_store(settings, store.url, tmp_path.name).model_copy(update={"home": tmp_path / "home"})
    path = f"{project_of.warehouse_root}-files/*.csv"
    source = f'Files("regions", "id BIGINT NOT NULL, name STRING", path="{path}")'
    given = {**os.environ, **environment(project_of)}
    given["LAKEHOUSE_DECLARATIONS"] = str(project(tmp_path, regions=DECLARED.format(source=source)))
    for text in (b"id,name\n1,North\n2,South\n", b"id,name\n1,Nord\n2,South\n"):
        obstore.put(folder(project_of, path.removesuffix("/*.csv")), "all.csv", text)
        shown = subprocess.run([LAKEHOUSE, "run"], env=given, capture_output=True, timeout=300, text=True, check=False)
        assert shown.returncode == 0, shown.stderr
    rows = query(project_of, "SELECT id, name FROM silver.regions ORDER BY id").fetchall()
    landed = query(project_of, "SELECT count(*) FROM bronze.regions").fetchall()
    assert (rows, landed) == ([(1, "Nord"), (2, "South")], [(3,)])
