"""A real Prometheus watches a pipeline that is troubled: each trouble sets off its alert, and nothing else does.

Times in the rules are shorter here: minutes are seconds, and hours are minutes.
"""

import json
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import requests
import yaml
from deltalake import DeltaTable

from pulsar_lakehouse.domains.shop.workload import Workload
from pulsar_lakehouse.local import broker
from pulsar_lakehouse.local.processes import free_port
from pulsar_lakehouse.pulsar.produce import produce
from pulsar_lakehouse.pulsar.topic_admin import create_topics
from pulsar_lakehouse.settings import Settings
from tests.jobs.test_crashes import ended, start, wait_until
from tests.lake import own_home
from tests.shop import TOPICS

MONITORING = Path(__file__).parent.parent.parent / "monitoring"
PANELS = json.loads((MONITORING / "grafana" / "dashboards" / "lakehouse.json").read_text())["panels"]
SHOP = Workload(users=100, orders=300, missing_users=0.1, malformed=0.01, duplicates=0.05)
STRANGERS = replace(SHOP, users=1, orders=400, seed=8, missing_users=1.0, start=SHOP.start + 86_400_000)
NO_DATA = ("> 0", "discarded", "failed_rules")
"""What is in the queries that find nothing in a pipeline which validates nothing and loses nothing."""

pytestmark = [
    pytest.mark.long,
    pytest.mark.broker,
    pytest.mark.skipif(shutil.which("prometheus") is None, reason="needs Prometheus, which Debian has"),
]


class Prometheus:
    """A Prometheus with our configuration, which asks one pipeline every two seconds."""

    def __init__(self, home: Path, pipeline: int) -> None:
        self.home, self.port = home, free_port()
        shortened = re.sub(r"\b(\d+)([mhd])\b", lambda time: time[1] + "smh"["mhd".index(time[2])], _rules())
        (home / "alerts.yml").write_text(shortened)
        config = yaml.safe_load((MONITORING / "prometheus.yml").read_text())
        config["global"] = {"scrape_interval": "2s", "evaluation_interval": "1s"}
        (job,) = config["scrape_configs"]
        job |= {"scrape_timeout": "2s", "static_configs": [{"targets": [f"127.0.0.1:{pipeline}"]}]}
        (home / "prometheus.yml").write_text(yaml.safe_dump(config))

    def start(self) -> subprocess.Popen[bytes]:
        command = ["prometheus", f"--config.file={self.home / 'prometheus.yml'}"]
        command += [f"--storage.tsdb.path={self.home / 'data'}", f"--web.listen-address=127.0.0.1:{self.port}"]
        with (self.home / "prometheus.log").open("wb") as log:
            return subprocess.Popen(command, cwd=self.home, stdout=log, stderr=subprocess.STDOUT)

    def query(self, query: str) -> list[dict[str, Any]]:
        """The samples of a query now."""
        answer = requests.get(f"http://127.0.0.1:{self.port}/api/v1/query", {"query": query}, timeout=10).json()
        assert answer["status"] == "success", answer
        return list(answer["data"]["result"])

    def alerts(self) -> set[str]:
        return {each["metric"]["alertname"] for each in self.query('ALERTS{alertstate="firing"}')}

    def has(self, query: str) -> Callable[[], bool]:
        """Whether a query finds something, once Prometheus answers."""

        def found() -> bool:
            try:
                return bool(self.query(query))
            except requests.ConnectionError:
                return False

        return found


def _rules() -> str:
    return (MONITORING / "alerts.yml").read_text()


@contextmanager
def watched(project: Settings, port: int) -> Iterator[Prometheus]:
    (project.home / "prometheus").mkdir()
    prometheus = Prometheus(project.home / "prometheus", port)
    with ended(prometheus.start()):
        yield prometheus


@pytest.fixture
def project(settings: Settings, tmp_path: Path) -> Iterator[Settings]:
    """A home with its own broker, which can be stopped."""
    project = own_home(settings, tmp_path)
    endpoint = broker.start(project)
    try:
        create_topics(TOPICS, endpoint, project)
        yield project
    finally:
        broker.stop(project)


def send(project: Settings, workload: Workload) -> None:
    endpoint = broker.running(project)
    assert endpoint is not None
    produce([(topic, workload.first(topic.name)) for topic in TOPICS], endpoint, project)


def test_each_trouble_sets_off_its_alert(project: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    port = free_port()
    monkeypatch.setenv("LAKEHOUSE_METRICS__PORT", str(port))
    monkeypatch.setenv("LAKEHOUSE_RUN__RETRIES", "50")
    monkeypatch.setenv("LAKEHOUSE_RUN__RETRY_DELAY", "2")
    send(project, SHOP)
    with watched(project, port) as prometheus:

        def fires(alert: str) -> Callable[[], bool]:
            return lambda: alert in prometheus.alerts()

        def is_quiet() -> bool:
            return not prometheus.alerts()

        with ended(start(project, "run", "--every", "2s")):
            wait_until(prometheus.has("lakehouse_waiting_facts > 0"), poll=1)
            wait_until(prometheus.has("lakehouse_waiting_facts offset 1m > 0"), poll=1)
            assert prometheus.alerts() == set()
            send(project, STRANGERS)
            wait_until(fires("LakehouseQuarantineGrows"), poll=1)
            wait_until(is_quiet, poll=1)
            broker.stop(project)
            wait_until(fires("LakehouseBrokerDown"), poll=1)
            broker.start(project)
            wait_until(is_quiet, poll=1)
            DeltaTable(project.table_path("gold.enriched_orders")).delete("order_date = '2026-01-01'")
            with ended(start(project, "reconcile")) as reconcile:
                assert reconcile.wait(300) == 1
            wait_until(fires("LakehouseReconciliationFailed"), poll=1)
            assert prometheus.alerts() == {"LakehouseReconciliationFailed"}
            assert empty_panels(prometheus) == []
        wait_until(fires("LakehouseMetricsAbsent"), poll=1)


def empty_panels(prometheus: Prometheus) -> list[str]:
    """The queries of the dashboard that find nothing, though they should."""
    queries = [target["expr"] for panel in PANELS for target in panel["targets"]]
    found = {query: prometheus.query(query.replace("$job", "lakehouse")) for query in queries}
    return [query for query, rows in found.items() if not rows and not any(word in query for word in NO_DATA)]
