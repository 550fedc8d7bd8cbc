"""A Pulsar cluster on this machine: ZooKeeper, three bookies and two brokers, each a process of its own.

Each of them can be killed and started again. Each message is on two bookies. The brokers want a token.
"""

import signal
import subprocess
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import requests

from pulsar_lakehouse.downloads.artifacts import pulsar_home
from pulsar_lakehouse.errors import BrokerError
from pulsar_lakehouse.jvm.java import java_home
from pulsar_lakehouse.local.broker import loopback
from pulsar_lakehouse.local.processes import HOST, end, free_port
from pulsar_lakehouse.pulsar.endpoint import Endpoint, call_admin
from pulsar_lakehouse.settings import Settings, environment_of_others
from tests.s3 import answers
from tests.tokens import AUTHENTICATION

ZOOKEEPER, BOOKIES, BROKERS = "zookeeper", ("bookie-0", "bookie-1", "bookie-2"), ("broker-0", "broker-1")
CONFIGURATIONS = {
    "zookeeper": ("zookeeper.conf", "PULSAR_ZK_CONF"),
    "bookie": ("bookkeeper.conf", "PULSAR_BOOKKEEPER_CONF"),
    "broker": ("broker.conf", "PULSAR_BROKER_CONF"),
}
"""By kind of process: the file in the distribution, and the variable that names another."""


@dataclass
class PulsarCluster:
    folder: Path
    settings: Settings
    """Those of its users, with the token."""
    processes: dict[str, psutil.Popen] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._ports = {name: free_port() for name in (ZOOKEEPER, *BOOKIES, *BROKERS)}
        self._web_ports = {name: free_port() for name in BROKERS}

    @property
    def endpoint(self) -> Endpoint:
        return self.endpoint_of(*BROKERS)

    def endpoint_of(self, *brokers: str) -> Endpoint:
        """URLs that name these brokers, in this order."""
        hosts, web_hosts = (
            ",".join(f"{HOST}:{ports[name]}" for name in brokers) for ports in (self._ports, self._web_ports)
        )
        return Endpoint(service_url=f"pulsar://{hosts}", admin_url=f"http://{web_hosts}")

    def start(self) -> None:
        self.launch(ZOOKEEPER)
        self._wait_until(lambda: answers(self._ports[ZOOKEEPER]))
        self._initialize()
        self.launch(BOOKIES[0])  # alone: two that start in an empty cluster can both want to write its layout
        self._wait_until(lambda: answers(self._ports[BOOKIES[0]]))
        self.mend()

    def mend(self) -> None:
        """Start what is not running, and wait until the brokers know each other and can write."""
        for name in (*BOOKIES, *BROKERS):
            if name not in self.processes:
                self.launch(name)
        self._wait_until(lambda: all(answers(self._ports[name]) for name in BOOKIES))
        self._wait_until(lambda: all(self._is_healthy(name) for name in BROKERS))

    def launch(self, name: str) -> None:
        kind = name.partition("-")[0]
        file, variable = CONFIGURATIONS[kind]
        configuration = self.folder / f"{name}.conf"
        configuration.write_text(_configured((self._home / "conf" / file).read_text(), self._values(name)))
        if kind == "broker":
            configuration.write_text(configuration.read_text() + AUTHENTICATION)
        with (self.folder / f"{name}.log").open("ab") as log:
            given = {**self._environment(), variable: str(configuration)}
            command: list[str | Path] = [self._home / "bin" / "pulsar", kind]
            self.processes[name] = psutil.Popen(command, env=given, stdout=log, stderr=log)

    def owner(self, topic: str) -> str:
        """The broker that serves a topic, by its full name."""
        url = self._look_up(topic).json()["brokerUrl"]
        return next(name for name in BROKERS if url.endswith(f":{self._ports[name]}"))

    def move(self, topic: str) -> None:
        """Let the other broker serve a topic."""
        [other] = set(BROKERS) - {self.owner(topic)}
        bundle = self._look_up(f"{topic}/bundle").text
        path = f"namespaces/{topic.rpartition('/')[0]}/{bundle}/unload"
        call_admin("PUT", f"{path}?destinationBroker={HOST}:{self._web_ports[other]}", self.endpoint, self.settings)
        self._wait_until(lambda: self.owner(topic) == other)

    def kill(self, name: str) -> None:
        """Kill a process, as if its machine had died."""
        process = self.processes.pop(name)
        end([process], 10, by=signal.SIGKILL)
        process.wait()

    def kill_all(self) -> None:
        for name in list(self.processes):
            self.kill(name)

    @property
    def _home(self) -> Path:
        return pulsar_home(self.settings.cache)

    def _initialize(self) -> None:
        """Write what the brokers share into ZooKeeper."""
        store, endpoint = f"zk:{HOST}:{self._ports[ZOOKEEPER]}", self.endpoint
        options = {
            "cluster": "tests",
            "metadata-store": store,
            "configuration-metadata-store": store,
            "broker-service-url": endpoint.service_url,
            "web-service-url": endpoint.admin_url,
        }
        command: list[str | Path] = [self._home / "bin" / "pulsar", "initialize-cluster-metadata"]
        command += [part for name, value in options.items() for part in (f"--{name}", value)]
        with (self.folder / "initialize.log").open("wb") as log:
            subprocess.run(command, env=self._environment(), stdout=log, stderr=log, check=True)

    def _environment(self) -> dict[str, str]:
        return environment_of_others() | {
            "JAVA_HOME": str(java_home()),
            "PULSAR_LOG_DIR": str(self.folder),
            "PULSAR_LOG_LEVEL": "warn",
            "PULSAR_MEM": "-Xms64m -Xmx320m -XX:MaxDirectMemorySize=256m",
            "PULSAR_GC": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
            "PULSAR_GC_LOG": "-Xlog:gc=off",
        }

    def _values(self, name: str) -> dict[str, object]:
        folder, zookeeper = self.folder / name, f"{HOST}:{self._ports[ZOOKEEPER]}"
        match name.partition("-")[0]:
            case "zookeeper":
                return {
                    "dataDir": folder,
                    "clientPort": self._ports[name],
                    "clientPortAddress": HOST,
                    "admin.enableServer": "false",
                    "metricsProvider.className": "org.apache.zookeeper.metrics.impl.DefaultMetricsProvider",
                }
            case "bookie":
                return {
                    "bookiePort": self._ports[name],
                    "advertisedAddress": HOST,
                    "listeningInterface": loopback(),
                    "allowLoopback": "true",
                    "journalDirectory": folder / "journal",
                    "ledgerDirectories": folder / "ledgers",
                    "metadataServiceUri": f"metadata-store:zk:{zookeeper}",
                    "statsProviderClass": "org.apache.bookkeeper.stats.NullStatsProvider",
                }
        return {
            "clusterName": "tests",
            "metadataStoreUrl": f"zk:{zookeeper}",
            "configurationMetadataStoreUrl": f"zk:{zookeeper}",
            "brokerServicePort": self._ports[name],
            "webServicePort": self._web_ports[name],
            "bindAddress": HOST,
            "advertisedAddress": HOST,
            "brokerDeleteInactiveTopicsEnabled": "false",
        }

    def _look_up(self, what: str) -> requests.Response:
        return call_admin("GET", f"../../lookup/v2/topic/persistent/{what}", self.endpoint, self.settings)

    def _is_healthy(self, broker: str) -> bool:
        alone = self.endpoint_of(broker)
        try:
            known = call_admin("GET", "brokers", alone, self.settings).json()
            return len(known) == len(BROKERS) and call_admin("GET", "brokers/health", alone, self.settings).ok
        except BrokerError:
            return False

    def _wait_until(self, condition: Callable[[], bool]) -> None:
        while not condition():
            for name, process in self.processes.items():
                assert process.poll() is None, (self.folder / f"{name}.log").read_text()
            time.sleep(0.2)


def _configured(text: str, values: Mapping[str, object]) -> str:
    kept = [line for line in text.splitlines() if line.partition("=")[0] not in values]
    return "\n".join([*kept, *(f"{name}={value}" for name, value in values.items())]) + "\n"
