"""What tests share. `endpoint` is a real broker, started once for all tests that ask for it."""

import gc
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import hypothesis
import pytest
from pyspark.sql import SparkSession

from pulsar_lakehouse.local import airflow_database, broker
from pulsar_lakehouse.progress import wait_until
from pulsar_lakehouse.pulsar.endpoint import Endpoint
from pulsar_lakehouse.settings import Settings, load_settings
from pulsar_lakehouse.spark.session import LITTLE_DATA, start_spark, stop_spark
from pulsar_lakehouse.tables.lake import Lake
from tests.bronze.broker_topics import Topics
from tests.cluster import Cluster
from tests.failing_writes.shim import Shim, has_compiler
from tests.java_client import JavaClient, java_client
from tests.s3 import CREDENTIALS, Server

# Great Expectations imports PySpark's client of Spark Connect. In a pytest-xdist worker, whose main module is no file,
# that client assumes that PySpark's own doctests are running, and exits.
sys.modules["pyspark.sql.connect"] = None  # type: ignore[assignment]


# `pytest --hypothesis-profile=search` tries more examples than a run of all tests can afford.
hypothesis.settings.register_profile(
    "search", max_examples=200, deadline=None, suppress_health_check=list(hypothesis.HealthCheck)
)


# Tables are as wide as in a file, whatever terminal the tests were started in.
os.environ.pop("COLUMNS", None)


# An engine would outlive the tests that start one by a command, with a Spark.
os.environ["LAKEHOUSE_ENGINE__IDLE_MINUTES"] = "0"


NEEDS = {
    "spark": "spark",
    "port": "spark",
    "endpoint": "broker",
    "java": "broker",
    "guarded": "broker",
    "company": "broker",
    "store": "broker",
    "cluster": "spark",
    "api": "airflow",
    "page": "browser",
}
"""The mark that a test gets for each of these fixtures. Tests that start such a thing themselves carry the mark."""


def pytest_collection_modifyitems(items: list[pytest.Function]) -> None:
    for item in items:
        for fixture, need in NEEDS.items():
            if fixture in item.fixturenames:
                item.add_marker(need)


def pytest_collection_finish() -> None:
    """Python's collector of garbage runs after each batch of a stream. It need not search all modules each time."""
    gc.freeze()


def pytest_sessionfinish() -> None:
    gc.unfreeze()  # else libraries complain of objects that nobody has freed


SECRET = "kept-to-ourselves"


@pytest.fixture(scope="session")
def settings(tmp_path_factory: pytest.TempPathFactory) -> Settings:
    loaded = load_settings(home=tmp_path_factory.mktemp("home"))
    conf = {**LITTLE_DATA, "spark.hadoop.fs.s3a.secret.key": SECRET, **loaded.spark.conf}
    spark = loaded.spark.model_copy(update={"conf": conf})
    return loaded.model_copy(update={"spark": spark})


@pytest.fixture(scope="session")
def endpoint(settings: Settings) -> Iterator[Endpoint]:
    yield broker.start(settings)
    broker.stop(settings)


@pytest.fixture
def topics(settings: Settings, endpoint: Endpoint, request: pytest.FixtureRequest) -> Iterator[Topics]:
    """An empty namespace, named after the test."""
    topics = Topics(f"public/{re.sub(r'[^a-z0-9]+', '-', request.node.name.lower())}", endpoint, settings)
    yield topics
    topics.close()


@pytest.fixture(scope="session")
def java(endpoint: Endpoint, settings: Settings) -> Iterator[JavaClient]:
    """Pulsar's own Java client."""
    with java_client(endpoint, settings, transactions=True) as client:
        yield client


@pytest.fixture(scope="session")
def shim(tmp_path_factory: pytest.TempPathFactory) -> Shim | None:
    """Lets calls fail with which the JVM changes files. Without a compiler, there is none."""
    return Shim(tmp_path_factory.mktemp("shim"), tmp_path_factory.getbasetemp()) if has_compiler() else None


@pytest.fixture(scope="session")
def spark(settings: Settings, shim: Shim | None) -> Iterator[SparkSession]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LAKEHOUSE_PULSAR__TOKEN", SECRET)
        for name, value in shim.environment.items() if shim else ():
            patch.setenv(name, value)
        session = start_spark(settings)
    yield session
    stop_spark()


@pytest.fixture(scope="session")
def lake(spark: SparkSession, settings: Settings) -> Lake:
    return Lake(spark, settings)


@pytest.fixture(scope="session")
def store(settings: Settings, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    server = Server(tmp_path_factory.mktemp("store"), settings.cache)
    server.start()
    with pytest.MonkeyPatch.context() as patch:
        for name, value in CREDENTIALS.items():
            patch.setenv(name, value)
        yield server
    server.kill()


@pytest.fixture(scope="session")
def postgres(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a Postgres like that of the local Airflow, which comes as a Python package."""
    data = tmp_path_factory.mktemp("postgres") / "data"
    with (data.parent / "postgres.log").open("wb") as log:
        airflow_database.create(data, log)
        server = airflow_database.launch(data, log)
    assert wait_until(lambda: airflow_database.is_ready(data), "Starting Postgres", timeout=30)
    yield airflow_database.address(data).replace("+psycopg2", "")
    server.send_signal(airflow_database.STOP)
    server.wait(30)


@pytest.fixture
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    made = Cluster(tmp_path_factory.mktemp("cluster"))
    try:
        made.start()
        yield made
    finally:
        made.kill()


@pytest.fixture(scope="module")
def generated_code(spark: SparkSession) -> Iterator[None]:
    """Generated code and adaptive plans, as in users' runs; for tests of each kind of step."""
    held = {name: spark.conf.get(name) for name in LITTLE_DATA}
    for name in held:
        spark.conf.unset(name)
    assert all(spark.conf.get(name) != value for name, value in held.items())
    yield
    for name, value in held.items():
        spark.conf.set(name, str(value))


@pytest.fixture(autouse=True)
def no_table_in_the_shared_home(settings: Settings) -> Iterator[None]:
    """Other tests would find a table that is left there."""
    yield
    assert not Path(settings.warehouse_root).exists(), "make tables in a home of the test's own: `own_home`"
