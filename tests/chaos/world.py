"""The product as it really runs: a broker, its topics, and `lakehouse run` as a process that is restarted.

The world also remembers what the topics have held, as read by Pulsar's own reader. The tables are compared with that.
"""

import json
import os
import random
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import psutil
import pulsar

from pulsar_lakehouse.contracts.topics import Topic
from pulsar_lakehouse.engine import control
from pulsar_lakehouse.errors import BusyError, LakehouseError, PermanentError
from pulsar_lakehouse.local import broker
from pulsar_lakehouse.local.processes import begun_by, end, read_state
from pulsar_lakehouse.pulsar.endpoint import Endpoint, call_admin, connect
from pulsar_lakehouse.pulsar.topic_admin import create_topics
from pulsar_lakehouse.settings import Settings
from pulsar_lakehouse.spark.session import SHORT_RUN
from tests.chaos.readers import Read, Reader, Readers, by_delta_rs, by_endpoint, by_query
from tests.chaos.recomputation import UNREADABLE, Recomputation
from tests.chaos.waves import Sent, Waves
from tests.lake import environment, versions
from tests.oracle import LAST_TIME, Message, Position, moment
from tests.shop import TOPICS

LAKEHOUSE = Path(sys.executable).with_name("lakehouse")
PATIENCE = 300.0
"""Seconds within which the tables must change, until they agree with the topics."""
AT_MOST = 1800.0
"""Seconds within which the tables must agree with the topics."""
KEPT = {"retentionTimeInMinutes": 600, "retentionSizeInMB": -1}
"""Retention with which orders can be read from their topic after they have landed, even if the broker is killed."""
NOT_KEPT = {"retentionTimeInMinutes": 0, "retentionSizeInMB": 0}
USER, PASSWORD = "ada", "lovelace-1815"
BUSY, ENDED_BY_US = BusyError.exit_code, 130


class NotSurvivedError(Exception):
    """Something is lost, duplicated, wrong or stopped for good, or the product has shown a stack trace."""


class Ended(NamedTuple):
    code: int
    text: str
    """The output of the command."""

    @property
    def last_line(self) -> str:
        return next((line for line in reversed(self.text.splitlines()) if line.strip()), "")


@dataclass
class World:
    settings: Settings
    draw: random.Random
    spark: Mapping[str, str] = field(default_factory=lambda: SHORT_RUN)
    """Additional properties of Spark."""
    topics: dict[tuple[str, Position], Message] = field(default_factory=dict)
    """All messages that the topics have ever held, by topic and position."""
    lost: set[tuple[str, Position]] = field(default_factory=set)
    """Those of them that an administrator removed before they had landed."""
    erased: set[tuple[str, Position]] = field(default_factory=set)
    """Those of them that `lakehouse forget` has erased."""
    added: dict[str, int] = field(default_factory=dict)
    """How many partitions the topics have that were given more."""
    starts: int = 0
    """How often `lakehouse run` was restarted because it had ended."""
    told: list[str] = field(default_factory=list)
    """The exit code and the last line of each run that ended by itself."""
    published: str = ""
    """The id of the gold table that was published last."""
    readers: Readers = field(init=False)
    """They read as long as the world goes on, once they were started."""
    _process: subprocess.Popen[bytes] | None = None
    _waves: Waves = field(init=False)

    def __post_init__(self) -> None:
        self._waves = Waves(self.draw)
        delta_rs = Reader("delta-rs", by_delta_rs(self.settings), pause=2)
        sql = Reader("lakehouse sql", by_query(self.settings), pause=2, is_of_a_moment=True)
        self.readers = Readers(self.settings, [delta_rs, sql])

    @property
    def gone(self) -> set[Position]:
        """The orders that were erased on purpose."""
        return {position for topic, position in self.erased if topic == "orders"}

    # The broker and its topics

    @property
    def endpoint(self) -> Endpoint:
        return broker.endpoint(self.settings)

    def start_broker(self) -> None:
        broker.start(self.settings)
        self.restore_topics()

    def restore_topics(self) -> None:
        """Create topics as `lakehouse topics create` does, and have the broker keep orders for a while.

        A topic that is created again has as many partitions as before.
        """
        create_topics(TOPICS, self.endpoint, self.settings)
        for topic, count in self.added.items():
            if len(self.partitions(topic)) < count:
                self.admin("POST", f"{topic}/partitions", count)
        self.admin("POST", "orders/retention", KEPT)

    def admin(self, method: str, path: str, body: object = None, accept: tuple[int, ...] = ()) -> Any:
        path = f"persistent/{self.settings.pulsar.namespace}/{path}"
        response = call_admin(method, path, self.endpoint, self.settings, body=body, accept=accept)
        return response.json() if response.text else None

    def partitions(self, topic: str) -> list[str]:
        """The partitions of a topic, without the namespace."""
        count = self.admin("GET", f"{topic}/partitions")["partitions"]
        return [f"{topic}-partition-{index}" for index in range(count)]

    def subscription(self, topic: str) -> str:
        return next(each for each in TOPICS if each.name == topic).subscription

    def broker_processes(self) -> list[psutil.Process]:
        pid = read_state(self.settings.home / "pulsar" / "broker.json")["pid"]
        return begun_by({pid: psutil.Process(pid).create_time()})

    def forget(self, topic: str) -> None:
        """Make the broker delete what no subscription needs, whatever the topic's retention was."""
        self.admin("POST", f"{topic}/retention", NOT_KEPT)
        for partition in self.partitions(topic):
            self.admin("PUT", f"{partition}/unload")
            deadline = time.monotonic() + 10
            while len(self.admin("GET", f"{partition}/internalStats")["ledgers"]) > 1 and time.monotonic() < deadline:
                self.admin("POST", f"{partition}/trim", accept=(404, 405, 409, 412, 500))
                time.sleep(0.3)

    # Messages

    def send(self, share: float = 1.0) -> None:
        """Send a wave of messages, or a share of one, then read what the topics hold."""
        self.send_all(self._waves.wave(share))

    def send_all(self, messages: Iterable[Sent]) -> None:
        acknowledged: list[tuple[str, pulsar.MessageId]] = []
        client = connect(self.endpoint, self.settings)
        producers: dict[str, pulsar.Producer] = {}
        batched = self.draw.random() < 0.7
        try:
            for topic, key, payload, event_time, properties in messages:
                if topic not in producers:
                    name = f"persistent://{self.settings.pulsar.namespace}/{topic}"
                    producers[topic] = client.create_producer(
                        name,
                        batching_enabled=batched,
                        batching_max_publish_delay_ms=5,
                        send_timeout_millis=20_000,
                        block_if_queue_full=True,
                    )

                def note(result: pulsar.Result, id: pulsar.MessageId, topic: str = topic) -> None:
                    if result == pulsar.Result.Ok:
                        acknowledged.append((topic, id))

                producers[topic].send_async(
                    payload, note, partition_key=key, event_timestamp=event_time or None, properties=dict(properties)
                )
            for producer in producers.values():
                producer.flush()
        finally:
            client.close()
        self.read_topics()
        if missing := {(topic, position_of(id)) for topic, id in acknowledged} - self.topics.keys():
            raise NotSurvivedError(f"the broker has lost {len(missing)} messages that it had acknowledged")

    def read_topics(self) -> set[tuple[str, Position]]:
        """Read all topics from their beginning; returns topic and position of each message that they hold now."""
        held: dict[tuple[str, Position], Message] = {}
        client = connect(self.endpoint, self.settings)
        for topic in (each.name for each in TOPICS):
            for partition in self.partitions(topic):
                name = f"persistent://{self.settings.pulsar.namespace}/{partition}"
                reader = client.create_reader(name, pulsar.MessageId.earliest)
                while reader.has_message_available():
                    message = message_of(topic, int(partition.rpartition("-")[2]), reader.read_next(10_000))
                    held[topic, message.position] = message
        client.close()
        if changed := [where for where in held.keys() & self.topics.keys() if held[where] != self.topics[where]]:
            raise NotSurvivedError(f"the broker has changed messages, such as {changed[0]}")
        self.topics |= held
        return set(held)

    # The product

    def environment(self) -> dict[str, str]:
        more = {
            "LAKEHOUSE_WAREHOUSE": self.settings.warehouse,
            "LAKEHOUSE_CHECKPOINTS": self.settings.checkpoints,
            "LAKEHOUSE_SPARK__CONF": json.dumps(self.spark),
            "LAKEHOUSE_RUN__RETRY_DELAY": "1",
            "LAKEHOUSE_RUN__BROKER_TIMEOUT": "30",
            "LAKEHOUSE_SERVE": json.dumps({"users": {USER: PASSWORD}}),
        }
        return {**os.environ, **environment(self.settings, **more)}

    def command(self, *words: str, codes: tuple[int, ...] = (0,), timeout: float = 600) -> Ended:
        """Run a `lakehouse` command to its end. Raises NotSurvivedError for another exit code or a stack trace."""
        done = subprocess.run(
            [LAKEHOUSE, *words],
            env=self.environment(),
            cwd=self.settings.home,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=timeout,
            check=False,
        )
        ended = Ended(done.returncode, done.stdout.decode())
        if ended.code not in codes or "Traceback" in ended.text:
            raise NotSurvivedError(f"`lakehouse {' '.join(words)}` exited with {ended.code}: {ended.text[-2000:]}")
        return ended

    @contextmanager
    def begun(self, *words: str) -> Iterator[psutil.Process]:
        """A command that runs during the block."""
        process = self._begin(*words)
        try:
            yield process
        finally:
            with ignoring_gone():
                process.kill()
            process.wait(60)

    def _begin(self, *words: str) -> psutil.Popen:
        with (self.settings.home / "killed.log").open("wb") as log:
            command = [str(LAKEHOUSE), *words]
            return psutil.Popen(command, env=self.environment(), cwd=self.settings.home, stdout=log, stderr=log)

    def kill_command(self, *words: str, once: Callable[[], bool], within: float) -> None:
        """Start a command, and kill it with its JVM at most so many seconds after something is so, unless it ends."""
        process = self._begin(*words)
        self.wait_for(lambda: once() or process.poll() is not None)
        time.sleep(self.draw.uniform(0, within))
        if process.poll():
            raise NotSurvivedError(f"`lakehouse {' '.join(words)}` exited with {process.returncode}")
        with ignoring_gone():
            end([process, *process.children(recursive=True)], 60, by=signal.SIGKILL)
        process.wait(60)
        self.wait_for(lambda: not (control.state(self.settings) or {}).get("borrower"))

    @contextmanager
    def served(self) -> Iterator[Read]:
        """The SQL endpoint during the block, after which it is killed."""
        with self.begun("serve") as process:
            log = self.settings.home / "killed.log"
            url = self.wait_for(lambda: re.search(r"SQL is served at .*:(\d+)", log.read_text()))
            try:
                yield by_endpoint(self.settings, int(url[1]), USER, PASSWORD)
            finally:
                with ignoring_gone():
                    end(process.children(recursive=True), 60, by=signal.SIGKILL)

    @property
    def log(self) -> Path:
        return self.settings.home / "run.log"

    def run(self) -> None:
        """Start `lakehouse run`, unless it is running."""
        if self._process is not None:
            return
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(
                [LAKEHOUSE, "run", "--every", "1s"],
                env=self.environment(),
                cwd=self.settings.home,
                stdout=log,
                stderr=subprocess.STDOUT,
            )

    def driver(self) -> psutil.Process:
        self.tend()
        assert self._process is not None
        return psutil.Process(self._process.pid)

    def jvm(self) -> psutil.Process:
        def found() -> list[psutil.Process]:
            return [each for each in self.driver().children() if "java" in each.name()]

        return psutil.Process(self.wait_for(found)[0].pid)

    def workers(self) -> list[psutil.Process]:
        """Spark's Python processes."""
        return [each for each in self.jvm().children(recursive=True) if "python" in each.name()]

    def family(self) -> list[psutil.Process]:
        """The driver, its JVM and Spark's Python processes, as far as they exist."""
        with ignoring_gone():
            if self._process is not None:
                driver = psutil.Process(self._process.pid)
                return [driver, *driver.children(recursive=True)]
        return []

    def stop(self, by: signal.Signals = signal.SIGTERM) -> None:
        """Ask `lakehouse run` to end, and wait until its JVM is gone too."""
        if self._process is None:
            return
        family = self.family()
        self._process.send_signal(by)
        self._await_end(family)
        self._refuse_stack_trace()

    def kill(self) -> None:
        """Kill driver, JVM and Python processes at once, like a power cut."""
        if self._process is None:
            return
        family = self.family()
        for each in family:
            with ignoring_gone():
                each.kill()
        self._await_end(family)

    def _await_end(self, family: list[psutil.Process]) -> None:
        assert self._process is not None
        self._process.wait(60)
        _, left = psutil.wait_procs(family, 60)
        self._process = None
        if left:
            raise NotSurvivedError(f"{left} are still there, though their driver has ended")

    def tend(self) -> None:
        """Start `lakehouse run` if it is not running, as systemd or Airflow would.

        Raises NotSurvivedError if it has given up, though no operator has to do anything.
        """
        if self._process is not None and self._process.poll() is None:
            return
        if self._process is not None:
            self._refuse_stack_trace()
            line = Ended(self._process.returncode, self.log.read_text()).last_line
            self.told.append(f"{self._process.returncode}: {line}")
            gave_up = self._process.returncode == PermanentError.exit_code and "no space left" not in line
            if gave_up:
                raise NotSurvivedError(f"it has given up, though no operator has to do anything: {line}")
            self.starts += 1
            self._process = None
            time.sleep(1)
        self.run()

    def refused(self) -> str:
        """Wait until `lakehouse run` has ended by itself; returns its last line, or nothing if it goes on."""
        self.run()
        process, self._process = self._process, None
        assert process is not None
        try:
            process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self._process = process
            return ""
        self._refuse_stack_trace()
        return Ended(process.returncode, self.log.read_text()).last_line

    def _refuse_stack_trace(self) -> None:
        if "Traceback" in (text := self.log.read_text()):
            raise NotSurvivedError(f"`lakehouse run` has shown a stack trace: {text[-3000:]}")

    # The comparison

    def recomputation(self) -> Recomputation:
        gone = self.lost | self.erased
        return Recomputation([message for where, message in self.topics.items() if where not in gone])

    def await_agreement(self) -> None:
        """Wait until the tables are what is recomputed. Raises NotSurvivedError with the differences."""
        self.read_topics()
        should = self.recomputation()
        started = changed = time.monotonic()
        before: list[str] = []
        while differences := should.differences(self.settings):
            now = time.monotonic()
            changed, before = (changed, before) if differences == before else (now, differences)
            if now - changed > PATIENCE or now - started > AT_MOST:
                last = "; ".join(self.told[-3:])
                raise NotSurvivedError(
                    f"after {now - started:.0f} s: {'; '.join(differences)}. Runs have ended with: {last}"
                )
            self._await_commit()

    def _await_commit(self) -> None:
        """Wait until a table has another version, but at most some seconds: to look costs less than to compare."""
        before, until = self._versions(), time.monotonic() + 5
        while time.monotonic() < until and self._versions() == before:
            self.tend()
            time.sleep(0.2)

    def _versions(self) -> Mapping[str, int] | None:
        try:
            return versions(self.settings)
        except (LakehouseError, *UNREADABLE):
            return None

    def wait_for(self, condition: Callable[[], Any], seconds: float = PATIENCE) -> Any:
        """Wait until the condition is true; returns its value. Raises NotSurvivedError after `seconds`."""
        deadline = time.monotonic() + seconds
        while not (found := condition()):
            if time.monotonic() > deadline:
                raise NotSurvivedError(f"nothing for {seconds:g} s")
            time.sleep(0.05)
        return found

    def reconcile(self) -> None:
        """Run the product's own reconciliation, between two rounds of `lakehouse run`."""
        self.command("reconcile")

    def close(self) -> None:
        self.readers.stop()
        self.kill()
        control.stop(self.settings)
        broker.stop(self.settings)


def ignoring_gone() -> AbstractContextManager[None]:
    return suppress(psutil.NoSuchProcess)


def position_of(id: pulsar.MessageId, partition: int | None = None) -> Position:
    return Position(id.partition() if partition is None else partition, id.ledger_id(), id.entry_id(), id.batch_index())


def message_of(topic: str, partition: int, message: pulsar.Message) -> Message:
    """A message from Pulsar's reader, in the oracle's form. An event time after the year 9999 counts as none."""
    payload, event_time = message.data(), message.event_timestamp()
    published = moment(message.publish_timestamp())
    assert published is not None
    return Message(
        topic,
        position_of(message.message_id(), partition),
        message.partition_key() or None,
        None if not payload and message.has_null_value() else payload,
        moment(event_time) if 0 < event_time <= LAST_TIME else None,
        published,
    )


def topic_named(name: str) -> Topic:
    return next(topic for topic in TOPICS if topic.name == name)
