"""The state of the whole pipeline, found without Spark.

`lakehouse status` shows these numbers, and the metrics are made of them. `jobs.problems` says what is wrong with them.
"""

import time
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

import duckdb
import pyarrow.compute as pc
from deltalake import DeltaTable

from pulsar_lakehouse.bronze.losses import refusal
from pulsar_lakehouse.bronze.reach import Reach
from pulsar_lakehouse.bronze.schemas import unreadable
from pulsar_lakehouse.contracts.decoding import MALFORMED
from pulsar_lakehouse.contracts.sources import Postgres
from pulsar_lakehouse.contracts.topics import Topic, in_full
from pulsar_lakehouse.errors import BrokerError, UnreachableError
from pulsar_lakehouse.expectations.results import RESULTS
from pulsar_lakehouse.gold.enrichment.declaration import Enrichment
from pulsar_lakehouse.inspection.table_status import TableStatus, table_statuses
from pulsar_lakehouse.local.broker import endpoint
from pulsar_lakehouse.pipeline.declared import Pipeline
from pulsar_lakehouse.pipeline.graph import nodes
from pulsar_lakehouse.pipeline.loading import pipeline_of
from pulsar_lakehouse.pulsar.backlog import TopicStatus, topic_status
from pulsar_lakehouse.pulsar.endpoint import Endpoint
from pulsar_lakehouse.pulsar.topic_admin import expiry_of_subscriptions
from pulsar_lakehouse.records import (
    ReconciliationRecord,
    SnapshotRecord,
    StepRecord,
    reconciliation_records,
    snapshot_record,
    step_records,
)
from pulsar_lakehouse.settings import Settings
from pulsar_lakehouse.silver.entity import Entity
from pulsar_lakehouse.spark.error_causes import cause_of
from pulsar_lakehouse.tables.stored import dataset_of, existing_tables, files_of


@dataclass(frozen=True, kw_only=True)
class TopicState:
    name: str
    status: TopicStatus | None
    """None if the broker does not say."""
    problem: str
    """Why the topic, or one of several, can't land; empty if it can."""
    left_out: Sequence[str] = ()
    """Those of several that can't land, as they are declared."""
    gone: Sequence[str] = ()
    """The topics that have landed and are not there any more, as a pattern may have."""


@dataclass(frozen=True, kw_only=True)
class SourceState:
    name: str
    place: str
    """What is read, such as `postgres public.regions`."""
    last: SnapshotRecord | None
    """Its last snapshot; None if there was none."""
    overdue: float
    """Seconds since a snapshot was due; 0 if none is, or as for files and Delta tables there is no time for it."""
    problem: str
    """Why the last snapshot did not land; empty if it did."""


@dataclass(frozen=True, kw_only=True)
class Waiting:
    """Facts in quarantine that wait for the same kind of state, for the same reason."""

    topic: str
    entity: str
    reason: str
    """`missing`, `deleted`, or what is wrong with its merges."""
    rows: int
    expired: int
    """Those that are no longer retried automatically."""
    oldest_seconds: float


@dataclass(frozen=True, kw_only=True)
class Malformed:
    """Messages of a topic in quarantine that break the contract."""

    topic: str
    rows: int = 0
    new: int = 0
    """Those of the last hour."""
    oldest_seconds: float = 0.0


@dataclass(frozen=True, kw_only=True)
class FailedChecks:
    table: str
    severity: str
    """Of rules that fail. One that can't be evaluated is critical, whatever its own severity."""
    rules: Sequence[str]
    """The rules that did not pass in the table's last validation; none if all did."""


@dataclass(kw_only=True)
class Status:
    broker: str = ""
    """Why the broker can't be asked; empty if it answers."""
    unreadable: str = ""
    """Why the tables can't be read; empty if they can."""
    contracts: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """By topic: how its newest schema differs from what is declared, so that its messages can't be read."""
    expiring: str = ""
    """Why subscriptions, and so messages, would expire; empty if they don't."""
    topics: Sequence[TopicState] = ()
    sources: Sequence[SourceState] = ()
    tables: Sequence[TableStatus] = ()
    stored: Mapping[str, DeltaTable] = field(default_factory=dict, repr=False)
    """The same tables by name, as they were opened."""
    freshness: Mapping[str, float] = field(default_factory=dict)
    """By table of gold with a stream: seconds since the oldest message or commit on its way to it; 0 if none is."""
    streams: Collection[str] = ()
    """The declared tables that a stream writes. Only these can be late: others wait until somebody refreshes them."""
    waiting: Sequence[Waiting] = ()
    malformed: Sequence[Malformed] = ()
    held: Mapping[tuple[str, str], int] = field(default_factory=dict)
    """By topic and place, which is `duplicates` or `discarded`: facts that are in no layer."""
    steps: Sequence[StepRecord] = ()
    reconciliations: Sequence[ReconciliationRecord] = ()
    unreconciled: Mapping[str, float] = field(default_factory=dict)
    """By topic that has landed: seconds since its last reconciliation or, if there was none, since its table was
    made."""
    checks: Sequence[FailedChecks] = ()
    landed: Mapping[str, int] = field(default_factory=dict)
    """By topic: its messages in bronze."""
    seconds: float = 0.0
    """The time that it took to find all this."""

    def held_back(self, topic: str) -> dict[str, int]:
        """How many of a topic's messages are in no layer, and why. Discarded ones are where they are meant to be."""
        return {
            "malformed": sum(each.rows for each in self.malformed if each.topic == topic),
            "waiting": sum(each.rows for each in self.waiting if each.topic == topic),
            "duplicate": self.held.get((topic, "duplicates"), 0),
        }


def status_of(settings: Settings) -> Status:
    """Does not fail for an absent broker or an unreadable table: the status says so."""
    began, pipeline = time.monotonic(), pipeline_of(settings)
    declared = {*(topic.name for topic in pipeline.landed), *pipeline.published_topics}
    declared |= {topic.name for topic in pipeline.topics}
    declared |= {entity.name for entity in pipeline.entities} | {table.name for table in pipeline.sql_tables}
    status = Status(
        streams=pipeline.written,
        steps=[each for each in step_records(settings) if each.step.partition(" ")[2] in declared],
        reconciliations=[each for each in reconciliation_records(settings) if each.topic in declared],
    )
    status.sources = [_source_state(settings, each, status.steps) for each in pipeline.sources]
    status.broker, status.topics = _ask_broker(settings, pipeline) if pipeline.topics else ("", [])
    with suppress(BrokerError):  # which is told already
        if pipeline.topics and not status.broker:
            status.expiring = expiry_of_subscriptions(endpoint(settings), settings) or ""
    try:
        status.stored = stored = dict(existing_tables(settings))
        status.tables = table_statuses(settings, stored)
        differing = {topic.name: unreadable(settings, topic) for topic in pipeline.topics}
        status.contracts = {name: lines for name, lines in differing.items() if lines}
        waiting = ((facts, stored.get(facts.waiting.name)) for facts in pipeline.enrichments)
        status.waiting = [each for facts, table in waiting if table is not None for each in waiting_facts(facts, table)]
        malformed = malformed_messages(stored[MALFORMED.name]) if MALFORMED.name in stored else {}
        status.malformed = [malformed.get(topic.name, Malformed(topic=topic.name)) for topic in pipeline.landed]
        rows = {each.name: each.rows for each in status.tables}
        status.landed = _landed(pipeline, rows, {each.topic: each.rows for each in status.malformed})
        status.held = {
            (facts.topic.name, place): rows.get(table.name, 0)
            for facts in pipeline.enrichments
            for place, table in (("duplicates", facts.duplicates), ("discarded", facts.discarded))
        }
        status.checks = failed_checks(stored.get(RESULTS.name))
    except Exception as error:  # a store that is down, a torn log: the libraries have many errors
        status.unreadable = cause_of(error)
    status.freshness = freshness(pipeline, status.topics, status.tables, status.sources)
    status.unreconciled = unreconciled(pipeline, status.tables, status.reconciliations)
    status.seconds = time.monotonic() - began
    return status


def _landed(pipeline: Pipeline, rows: Mapping[str, int], malformed: Mapping[str, int]) -> dict[str, int]:
    """By topic: its messages. By kind, and by topic with many rows: the rows that were made of them, as tables tell."""
    landed = {topic.name: rows.get(topic.bronze_table, 0) for topic in pipeline.bronze}
    tables = {facts.topic: facts.places for facts in pipeline.enrichments}
    tables |= {entity.topic: (entity.history.name,) for entity in pipeline.entities if entity.keeps_history}
    made = {topic.name: sum(rows.get(each, 0) for each in tables[topic]) for topic in tables if not topic.is_plain}
    return landed | {name: number + malformed.get(name, 0) for name, number in made.items()}


def freshness(
    pipeline: Pipeline,
    topics: Sequence[TopicState],
    tables: Sequence[TableStatus],
    sources: Sequence[SourceState] = (),
) -> dict[str, float]:
    """By table of gold that exists: how long the oldest message or commit has been on its way. See Status.

    It is not known, and left out, if the lag of one of its topics is not, or if a source was never read.
    """
    told = {each.name: each.status.lag_seconds for each in topics if each.status}
    lags = {
        origin: lag
        for topic in pipeline.topics
        if (lag := told.get(topic.name)) is not None
        for origin in topic.origins
    }
    lags |= {each.place: each.overdue for each in sources if each.last}
    lags |= {each.name: each.lag_seconds or 0.0 for each in tables if each.name in pipeline.written}
    lags |= {each.history.name: lags[each.table.name] for each in pipeline.entities if each.table.name in lags}
    oldest: dict[str, float] = {}
    for node in nodes(pipeline):  # sources come first
        if node.name in lags and all(source in oldest for source in node.sources):
            oldest[node.name] = max([lags[node.name], *(oldest[source] for source in node.sources)])
    return {name: age for name, age in oldest.items() if name.startswith("gold.")}


def unreconciled(
    pipeline: Pipeline, tables: Sequence[TableStatus], done: Sequence[ReconciliationRecord]
) -> dict[str, float]:
    """By topic that has landed: how long it was not reconciled. See Status."""
    landed = {each.name: each.made_at.timestamp() for each in tables if each.rows}
    last, now = {each.topic: each.at for each in done}, time.time()
    return {
        topic.name: now - last.get(topic.name, landed[topic.bronze_table])
        for topic in pipeline.landed
        if topic.bronze_table in landed
    }


def _source_state(settings: Settings, entity: Entity, steps: Sequence[StepRecord]) -> SourceState:
    source, last = entity.source, snapshot_record(settings, entity.name)
    assert source is not None
    due = last.read_at + source.seconds if last and isinstance(source, Postgres) else time.time()
    problem = next((each.failure for each in steps if each.step == f"land {entity.name}"), "")
    overdue = max(0.0, time.time() - due)
    return SourceState(name=entity.name, place=source.place, last=last, overdue=overdue, problem=problem)


def _ask_broker(settings: Settings, pipeline: Pipeline) -> tuple[str, list[TopicState]]:
    try:
        broker = endpoint(settings)
    except Exception as error:
        return cause_of(error), []
    states: list[TopicState] = []
    for topic in pipeline.topics:
        try:
            states.append(_topic_state(topic, broker, settings))
        except UnreachableError as error:  # don't wait for it once for each topic
            return str(error), states
    return "", states


def _topic_state(topic: Topic, broker: Endpoint, settings: Settings) -> TopicState:
    """Raises UnreachableError if the broker does not answer."""
    status = None
    try:
        status = topic_status(topic, broker, settings)
        if topic.is_several:
            reach = Reach(settings, topic, broker, claims=False)
            reach.plan()
            named = {name: in_full(name, settings.pulsar.namespace) for name in topic.own_names}
            left_out = [name for name, full in named.items() if full in reach.troubles]
            return TopicState(name=topic.name, status=status, problem=reach.told(), left_out=left_out, gone=reach.gone)
        problem = refusal(settings, topic, broker) or ""
    except UnreachableError:
        raise
    except Exception as error:  # what stops this look also stops landing
        problem = cause_of(error)
    return TopicState(name=topic.name, status=status, problem=problem)


def waiting_facts(facts: Enrichment, table: DeltaTable) -> list[Waiting]:
    """Counts the rows of a table of waiting facts. It reads two columns of them, and they are few."""
    rows = duckdb.from_arrow(dataset_of(table))
    first = rows.project(
        "coalesce(missing[1].entity, 'unknown') AS entity, coalesce(missing[1].reason, 'unknown') AS reason, "
        "date_diff('second', waiting_since, now()) AS age"
    )
    expired = f"count(*) FILTER (WHERE age > {facts.retry_days} * 86400)"
    counts = first.aggregate(f"entity, reason, count(*), {expired}, max(age)", "entity, reason").fetchall()
    return [
        Waiting(topic=facts.topic.name, entity=entity, reason=reason, rows=count, expired=expired, oldest_seconds=age)
        for entity, reason, count, expired, age in counts
    ]


def malformed_messages(table: DeltaTable) -> dict[str, Malformed]:
    """The malformed messages by topic, by the table's log. Only files with messages of the last hour are read."""
    files, now = files_of(table), datetime.now(UTC)
    if not len(files):
        return {}
    since = now - timedelta(hours=1)
    fresh = files.filter(pc.greater_equal(files["max.quarantined_at"], since))
    rows = dataset_of(table, fresh).to_table(columns=["topic"], filter=pc.field("quarantined_at") >= since)
    new = Counter(rows["topic"].to_pylist())
    counted = files.group_by("partition.topic").aggregate([("num_records", "sum"), ("min.quarantined_at", "min")])
    by_topic = zip(*(column.to_pylist() for column in counted.columns), strict=True)
    return {
        topic: Malformed(topic=topic, rows=count, new=new[topic], oldest_seconds=(now - oldest).total_seconds())
        for topic, count, oldest in by_topic
    }


def failed_checks(results: DeltaTable | None) -> list[FailedChecks]:
    """The last validation of each table, if it was in the last two days: older files are not read."""
    if results is None:
        return []
    since = datetime.fromtimestamp(time.time() - 2 * 86_400, UTC)
    recent = duckdb.from_arrow(dataset_of(results)).filter(f"validated_at > '{since.isoformat()}'")
    last = recent.project("*, max(validated_at) OVER (PARTITION BY table_name) AS last").filter("validated_at = last")
    severity = "CASE outcome WHEN 'error' THEN 'critical' ELSE severity END AS severity"
    failed = "coalesce(list(rule ORDER BY rule) FILTER (WHERE outcome != 'passed'), [])"
    rules = last.project(f"table_name, rule, outcome, {severity}")
    failing = rules.aggregate(f"table_name, severity, {failed}", "table_name, severity").order("ALL").fetchall()
    return [FailedChecks(table=table, severity=severity, rules=rules) for table, severity, rules in failing]
