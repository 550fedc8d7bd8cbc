"""The pipeline as Airflow runs it, on a real broker and real Spark: what the tables hold is what the oracle says."""

import subprocess
import sys

import pytest

from jobs.pipeline import TOPICS
from lakehouse.endpoint import Endpoint
from lakehouse.produce import produce
from lakehouse.settings import Settings
from lakehouse.workload import Workload
from tests.lake import environment, expected, messages, own_topics, tables
from tests.oracle import Oracle

MESSY = Workload(users=100, orders=1_000, late_users=0.2, missing_users=0.05, duplicates=0.1, malformed=0.1)


@pytest.fixture
def lake(
    settings: Settings,
    endpoint: Endpoint,
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
) -> Settings:
    lake = own_topics(settings, endpoint, tmp_path_factory.mktemp("dags"))
    for name, value in environment(lake, LAKEHOUSE_SPARK__MEMORY="1g").items():
        monkeypatch.setenv(name, value)
    return lake


def test_the_dag_by_itself(lake: Settings, endpoint: Endpoint) -> None:
    produce([(topic, MESSY.first(topic.name)) for topic in TOPICS], endpoint, lake)
    for arguments in (["db", "migrate"], ["dags", "test", "pipeline"]):
        subprocess.run([sys.executable, "-m", "airflow", *arguments], check=True)
    oracle = Oracle().run(messages(lake))
    assert tables(lake) == expected(oracle)
    assert oracle.waiting
