"""A Spark cluster on this machine: a master and workers, each a process of its own. A worker starts executors."""

import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from pulsar_lakehouse.domains.shop.workload import Workload
from pulsar_lakehouse.local.processes import end, free_port
from pulsar_lakehouse.pulsar.produce import Message
from pulsar_lakehouse.settings import environment_of_others
from tests.s3 import answers

HOST = "127.0.0.1"
HOMES = (
    "import pyspark; from pulsar_lakehouse.jvm.java import java_home; "
    "print(pyspark.__path__[0], java_home(), sep='\\n')"
)
"""Prints the folders of Spark and of Java."""


@dataclass
class Cluster:
    folder: Path
    environment: Path = Path(sys.prefix)
    """The Python environment whose Spark it is."""
    port: int = field(default_factory=free_port)
    processes: list[psutil.Popen] = field(default_factory=list)
    """The master and the workers, in the order in which they were started."""
    _started: int = 0

    @property
    def master(self) -> str:
        return f"spark://{HOST}:{self.port}"

    @property
    def workers(self) -> list[psutil.Popen]:
        return self.processes[1:]

    def start(self, *, workers: int = 2) -> None:
        self._start("master.Master", "--port", str(self.port))
        while not answers(self.port):
            assert self.processes[0].poll() is None, (self.folder / "0.log").read_text()
            time.sleep(0.1)
        for _ in range(workers):
            self.add_worker()

    def add_worker(self) -> None:
        """Start a worker with one core. Spark starts executors on it as soon as it has registered."""
        folder = str(self.folder / "work" / str(self._started))
        self._start("worker.Worker", "--cores", "1", "--memory", "4g", "--work-dir", folder, self.master)

    def _start(self, what: str, *arguments: str) -> None:
        self.folder.mkdir(exist_ok=True)
        spark, java = subprocess.check_output(
            [self.environment / "bin" / "python", "-c", HOMES], cwd=self.folder, text=True
        ).splitlines()
        given = environment_of_others() | {
            "JAVA_HOME": java,
            "SPARK_HOME": spark,
            "SPARK_LOCAL_IP": HOST,
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_DAEMON_JAVA_OPTS": "-XX:TieredStopAtLevel=1 -Dspark.master.rest.enabled=false",
        }
        command: list[str | Path] = [self.environment / "bin" / "spark-class", f"org.apache.spark.deploy.{what}"]
        command += ["--host", HOST, "--webui-port", "0", *arguments]
        with (self.folder / f"{self._started}.log").open("wb") as log:
            self.processes.append(psutil.Popen(command, env=given, cwd=self.folder, stdout=log, stderr=log))
        self._started += 1

    def executors(self) -> list[psutil.Process]:
        """The JVMs that run tasks now."""
        started = [child for worker in self.workers if worker.is_running() for child in worker.children()]
        return [child for child in started if _is_executor(child)]

    def kill_executor(self) -> None:
        """Kill an executor as soon as there is one."""
        while not (running := self.executors()):
            time.sleep(0.1)
        running[0].kill()

    def executor_logs(self) -> list[str]:
        """What each executor has logged, also those that have ended."""
        return [log.read_text() for log in self.folder.glob("work/*/app-*/*/stderr")]

    def wait_for_executors(self, number: int) -> None:
        while sum("Successfully registered with driver" in log for log in self.executor_logs()) < number:
            time.sleep(0.1)

    def lose_worker(self) -> None:
        """Kill the oldest worker and its executors, as if its machine had died."""
        lost = self.workers[0]
        self._kill(lost)
        self.processes.remove(lost)

    def kill(self) -> None:
        """Kill all of it, with all that the executors have started."""
        for process in self.processes:
            self._kill(process)

    @staticmethod
    def _kill(process: psutil.Popen) -> None:
        end([process, *process.children(recursive=True)], 10, by=signal.SIGKILL)
        process.wait()


def _is_executor(process: psutil.Process) -> bool:
    """Whether it is the JVM, and not one of the shells that Spark starts for a moment."""
    with suppress(psutil.Error):
        return any("CoarseGrainedExecutorBackend" in word for word in process.cmdline())
    return False


def skewed(workload: Workload, topic: str) -> Iterator[Message]:
    """The first phase, but half of the orders are those of user 1, and all of them are on one partition."""
    for number, message in enumerate(workload.first(topic)):
        if topic == "orders":
            payload = message.payload or b""
            yield message._replace(
                key="same", payload=re.sub(rb'"userId":\d+', b'"userId":1', payload) if number % 2 else payload
            )
        else:
            yield message
