"""What the benchmarks share: a broker with a backlog, and a clock that also counts the CPU of child processes."""

import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from statistics import median

import psutil

from jobs.pipeline import TOPICS
from lakehouse import broker
from lakehouse.endpoint import Endpoint
from lakehouse.produce import produce
from lakehouse.settings import Settings, load_settings
from lakehouse.topic_admin import create_topics
from lakehouse.workload import Workload


@dataclass
class Lap:
    """Wall-clock seconds, and CPU seconds of this process and all below it (the broker is none of them)."""

    wall: float = 0.0
    cpu: float = 0.0


@contextmanager
def lap() -> Iterator[Lap]:
    measured = Lap()
    wall, cpu = time.monotonic(), _cpu_seconds()
    yield measured
    measured.wall, measured.cpu = time.monotonic() - wall, _cpu_seconds() - cpu


def middle(laps: list[Lap]) -> Lap:
    return Lap(median(each.wall for each in laps), median(each.cpu for each in laps))


@contextmanager
def backlog(workload: Workload) -> Iterator[tuple[Settings, Endpoint, dict[str, int]]]:
    """An embedded broker of its own that holds the workload's first phase; yields the messages by topic."""
    user = load_settings()
    settings = user.model_copy(update={"home": user.home / "benchmark", "warehouse": "", "checkpoints": ""})
    broker.stop(settings)
    shutil.rmtree(settings.home, ignore_errors=True)
    try:
        endpoint = broker.start(settings)
        create_topics(TOPICS, endpoint, settings)
        sent = produce([(topic, workload.first(topic.name)) for topic in TOPICS], endpoint, settings)
        yield settings, endpoint, sent
    finally:
        broker.stop(settings)


def _cpu_seconds() -> float:
    this = psutil.Process()
    total = 0.0
    for process in [this, *this.children(recursive=True)]:
        try:
            spent = process.cpu_times()
        except psutil.NoSuchProcess:
            continue
        total += spent.user + spent.system + spent.children_user + spent.children_system
    return total
