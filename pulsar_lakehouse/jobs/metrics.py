"""The state of the pipeline as metrics in Prometheus' format, with a health and a readiness endpoint beside them."""

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TypeVar
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST, ThreadingWSGIServer
from prometheus_client.registry import Collector

from pulsar_lakehouse.errors import ConfigurationError, LakehouseError
from pulsar_lakehouse.jobs.pipeline_status import Status, status_of
from pulsar_lakehouse.pipeline.loading import pipeline_of
from pulsar_lakehouse.settings import Settings

KEPT_SECONDS = 10.0
"""For so long, several readers get the same numbers."""
HUNG_SECONDS = 600.0
"""A pipeline that runs on is not healthy if it has shown no life for so long. It does so several times a second."""

Samples = Iterable[tuple[tuple[str, ...], float]]
Part = TypeVar("Part")


@dataclass(frozen=True)
class Figure:
    """A metric: its name after `lakehouse_`, what it says, its labels, and its samples."""

    name: str
    says: str
    labels: tuple[str, ...]
    samples: Callable[[Status], Samples]

    @property
    def full_name(self) -> str:
        return f"lakehouse_{self.name}"


def _whole(name: str, says: str, value: Callable[[Status], float]) -> Figure:
    return Figure(name, says, (), lambda status: [((), value(status))])


def _each(
    prefix: str, labels: tuple[str, ...], parts: Callable[[Status], Iterable[tuple[tuple[str, ...], Part]]]
) -> Callable[[str, str, Callable[[Part], float | None]], Figure]:
    """Makes figures with a sample for each of the parts, which have these labels, if the part has a value."""

    def figure(name: str, says: str, value: Callable[[Part], float | None]) -> Figure:
        def samples(status: Status) -> Samples:
            values = ((given, value(part)) for given, part in parts(status))
            return ((given, number) for given, number in values if number is not None)

        return Figure(f"{prefix}_{name}", says, labels, samples)

    return figure


_topic = _each("topic", ("topic",), lambda it: (((each.name,), each.status) for each in it.topics if each.status))
_table = _each("table", ("table",), lambda it: (((each.name,), each) for each in it.tables))
_waiting = _each(
    "waiting",
    ("topic", "entity", "reason"),
    lambda it: (((each.topic, each.entity, each.reason), each) for each in it.waiting),
)
_malformed = _each("malformed", ("topic",), lambda it: (((each.topic,), each) for each in it.malformed))
_step = _each("step", ("step",), lambda it: (((each.step,), each) for each in it.steps))
_reconciliation = _each("reconciliation", ("topic",), lambda it: (((each.topic,), each) for each in it.reconciliations))


def _held(name: str, place: str, says: str) -> Figure:
    def samples(status: Status) -> Samples:
        return (((topic,), rows) for (topic, where), rows in status.held.items() if where == place)

    return Figure(name, says, ("topic",), samples)


FIGURES = (
    _whole("broker_up", "1 if the broker answers, 0 if not", lambda it: not it.broker),
    _whole("tables_up", "1 if all tables can be read, 0 if not", lambda it: not it.unreadable),
    _whole("collect_seconds", "Seconds it took to find these numbers", lambda it: it.seconds),
    _topic("messages_total", "Messages since the broker started", lambda it: it.messages),
    _topic("backlog_entries", "Entries (messages, or batches of messages) that have not landed", lambda it: it.backlog),
    _topic(
        "lag_seconds",
        "Age of the oldest message that has not landed; 0 if all have, no sample if the broker does not say",
        lambda it: it.lag_seconds,
    ),
    Figure(
        "topic_blocked",
        "1 if the topic can't land, such as after messages were lost before it; 0 if it can",
        ("topic",),
        lambda status: (((each.name,), bool(each.problem)) for each in status.topics),
    ),
    _table("rows", "Rows", lambda it: it.rows),
    _table("bytes", "Bytes of the current files", lambda it: it.size),
    _table("files", "Current files", lambda it: it.files),
    _table("version", "Version, which each commit increases", lambda it: it.version),
    _table("deleted_rows", "Rows kept whose key is deleted", lambda it: it.deleted),
    _table("lag_commits", "Commits of its sources that were not read", lambda it: it.lag),
    _table("lag_seconds", "Age of the oldest of these commits; 0 if there are none", lambda it: it.lag_seconds),
    _table(
        "ran_timestamp_seconds",
        "When its last batch ended or, without a stream, when it last changed; seconds since 1970",
        lambda it: it.ran_at.timestamp(),
    ),
    Figure(
        "gold_freshness_seconds",
        "Age of the oldest message or commit on its way to a table of gold that a stream writes; 0 if none is",
        ("table",),
        lambda status: (((name,), age) for name, age in status.freshness.items()),
    ),
    _waiting("facts", "Facts in quarantine, by the first state that they wait for", lambda it: it.rows),
    _waiting("oldest_seconds", "Seconds for which the oldest of them has waited", lambda it: it.oldest_seconds),
    _waiting("expired_facts", "Those that are no longer retried by themselves", lambda it: it.expired),
    _malformed("messages", "Messages in quarantine that break the contract", lambda it: it.rows),
    _malformed("new_messages", "Those that came to quarantine within the last hour", lambda it: it.new),
    _malformed("oldest_seconds", "Seconds since the oldest came; 0 if there is none", lambda it: it.oldest_seconds),
    _held("duplicate_facts", "duplicates", "Messages that repeat a fact"),
    _held("discarded_facts", "discarded", "Waiting facts that somebody discarded"),
    Figure(
        "landed_messages",
        "Messages of the topic that have landed",
        ("topic",),
        lambda status: (((topic,), rows) for topic, rows in status.landed.items()),
    ),
    Figure(
        "held_back_messages",
        "Those of them that are malformed, waiting or duplicates",
        ("topic",),
        lambda status: (((topic,), sum(status.held_back(topic).values())) for topic in status.landed),
    ),
    _step("rows_total", "Rows read: messages, or changes of tables", lambda it: it.rows),
    _step("batches_total", "Batches", lambda it: it.batches),
    _step("seconds_total", "Seconds that batches took", lambda it: it.seconds),
    _step("retries_total", "Retries after transient failures", lambda it: it.retries),
    _step("failures_total", "Runs that ended with a failure of the step", lambda it: it.failures),
    _step("failed", "1 if its last run failed, 0 if not", lambda it: bool(it.failure)),
    _step("batch_timestamp_seconds", "When its last batch ended; seconds since 1970", lambda it: it.batch_at),
    _reconciliation("holds", "1 if each landed message was in one place, 0 if not", lambda it: it.holds),
    _reconciliation("difference_messages", "Landed messages minus accounted ones", lambda it: it.difference),
    _reconciliation("timestamp_seconds", "When it was last done; seconds since 1970", lambda it: it.at),
    Figure(
        "unreconciled_seconds",
        "Age of the last reconciliation of a topic or, if there was none, of its table; no sample if nothing landed",
        ("topic",),
        lambda status: (((topic,), age) for topic, age in status.unreconciled.items()),
    ),
    Figure(
        "failed_rules",
        "Rules that did not pass in the table's last validation, if that was in the last two days. One that can't be "
        "evaluated is critical",
        ("table", "severity"),
        lambda status: (((each.table, each.severity), len(each.rules)) for each in status.checks),
    ),
)
"""All metrics. `jobs.pipeline_status` finds their values."""


class Metrics(Collector):
    """Finds the numbers when somebody asks for them, and keeps them for some seconds."""

    def __init__(self, settings: Settings) -> None:
        self._settings, self._lock = settings, threading.Lock()
        self._status, self._until = Status(), 0.0

    def status(self) -> Status:
        with self._lock:
            if time.monotonic() >= self._until:
                self._status = status_of(self._settings)
                self._until = time.monotonic() + KEPT_SECONDS
            return self._status

    def collect(self) -> Iterator[Metric]:
        yield from families(self.status())

    def text(self) -> bytes:
        """All metrics in Prometheus' text format."""
        registry = CollectorRegistry()
        registry.register(self)
        return generate_latest(registry)


def families(status: Status) -> Iterator[Metric]:
    for each in FIGURES:
        kind = CounterMetricFamily if each.name.endswith("_total") else GaugeMetricFamily
        family = kind(each.full_name, each.says, labels=each.labels)
        for labels, value in each.samples(status):
            family.add_metric(labels, value)
        yield family


class Pulse:
    """When the pipeline that runs on in this process has last shown life."""

    def __init__(self) -> None:
        self._at = time.monotonic()

    def beat(self) -> None:
        self._at = time.monotonic()

    def problem(self) -> str:
        """Why the pipeline is not healthy; empty if it is."""
        age = time.monotonic() - self._at
        return f"the pipeline has not moved for {age:.0f} s" if age > HUNG_SECONDS else ""


class _Server(ThreadingWSGIServer):
    def handle_error(self, *_: object) -> None:
        """A reader that goes away in the middle of an answer is nothing to report."""


class _Silent(WSGIRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        pass


def serve_metrics(settings: Settings, pulse: Pulse | None = None) -> WSGIServer:
    """Serve metrics at `metrics.host` and `metrics.port` in a thread. Without a pulse, the process is always healthy.

    Raises ConfigurationError if the port is not set or declarations have mistakes, and LakehouseError if the address
    can't be used.
    """
    if settings.metrics.port is None:
        raise ConfigurationError("metrics.port: set it to the port at which to serve, such as 9464")
    pipeline_of(settings)  # declarations with mistakes are told now, not to each reader
    host, port = settings.metrics.host, settings.metrics.port
    try:
        server = make_server(host, port, application(Metrics(settings), pulse), _Server, _Silent)
    except OSError as error:
        raise LakehouseError(f"metrics.port: {host}:{port} can't be used: {error.strerror}") from error
    threading.Thread(target=server.serve_forever, name="metrics", daemon=True).start()
    return server


def application(metrics: Metrics, pulse: Pulse | None) -> Callable[..., list[bytes]]:
    def answer(environ: dict[str, str], start: Callable[..., object]) -> list[bytes]:
        code, kind, body = "200 OK", "text/plain; charset=utf-8", b"ok\n"
        match environ["PATH_INFO"]:
            case "/metrics":
                kind, body = CONTENT_TYPE_LATEST, metrics.text()
            case "/-/healthy":
                code, body = _verdict(pulse.problem() if pulse else "")
            case "/-/ready":
                status = metrics.status()
                code, body = _verdict(status.broker or status.unreadable)
            case _:
                code, body = "404 Not Found", b"there are /metrics, /-/healthy and /-/ready\n"
        start(code, [("Content-Type", kind)])
        return [body]

    return answer


def _verdict(problem: str) -> tuple[str, bytes]:
    return ("503 Service Unavailable", f"{problem}\n".encode()) if problem else ("200 OK", b"ok\n")
