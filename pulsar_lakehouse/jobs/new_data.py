"""Whether there is anything new for the steps of the pipeline: the reasons to run them, and whether it is little.

No reason means that there is nothing new. Airflow's runs, and each step of them, ask for `reasons`, and its backlog's
trigger for `new_messages`; `lakehouse run --every` compares two looks by `reasons_since`. None of them needs Spark.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum

from pulsar_lakehouse.bronze.sources import news
from pulsar_lakehouse.contracts.services import Service
from pulsar_lakehouse.contracts.topics import Topic
from pulsar_lakehouse.errors import BrokerError
from pulsar_lakehouse.expectations.results import last_validated
from pulsar_lakehouse.gold.sql.header import INCREMENTAL
from pulsar_lakehouse.inspection.table_status import TableStatus, table_statuses, unread_commits
from pulsar_lakehouse.jobs.overdue import overdue
from pulsar_lakehouse.jobs.questions import question
from pulsar_lakehouse.local.broker import endpoint
from pulsar_lakehouse.pipeline.declared import Pipeline
from pulsar_lakehouse.pipeline.loading import pipeline_of
from pulsar_lakehouse.pulsar.backlog import topic_status
from pulsar_lakehouse.records import reconciliation_records
from pulsar_lakehouse.settings import Settings
from pulsar_lakehouse.silver.entity import Entity

SELDOM = timedelta(hours=1)
"""Longest time between two reconciliations, and two validations, even if nothing arrives: some rules detect topics that
are too quiet."""

LITTLE = 16 * 2**20
"""Bytes of tables and backlogs that a run is short for: a few hundred thousand messages."""

Look = Mapping[str, object]
"""The states of topics and tables, by name."""


class Step(StrEnum):
    """The steps of a run, as in `jobs.steps`."""

    LAND = "land"
    MERGE = "merge"
    ENRICH = "enrich"
    RECONCILE = "reconcile"
    VALIDATE = "validate"
    REFRESH = "refresh"
    PUBLISH = "publish"


NEWS = tuple(step for step in Step if step is not Step.PUBLISH)
"""The steps that start a run. A topic gets nothing new without them, and until its first change it has no record."""


class Kind(StrEnum):
    NEW_MESSAGES = "new messages"
    NEW_SNAPSHOT = "a new snapshot"
    CHANGED = "changed"
    UNREAD = "unread commits"
    UNRECORDED = "no record"
    REFRESHED_AS_A_WHOLE = "refreshed as a whole"
    UNRECONCILED = "not reconciled"
    UNVALIDATED = "not validated"
    HOUR_PASSED = "an hour has passed"
    REQUESTED = "requested"
    OVERDUE = "intervals are over"
    UNKNOWN = "not known"


@dataclass(frozen=True)
class Reason:
    kind: Kind
    line: str
    count: int = 0
    """Of the entries or commits."""


def is_little(settings: Settings, topics: Iterable[Topic]) -> bool:
    """Whether tables, and the backlogs of these topics, are so small that Spark's planning is most of the work."""
    try:
        stored = sum(status.size for status in table_statuses(settings))
        backlogs = (topic_status(topic, endpoint(settings), settings).backlog_bytes for topic in topics)
        return stored + sum(backlogs) <= LITTLE
    except Exception:  # such as a torn file: it does not matter here
        return False


def reasons(settings: Settings, steps: Iterable[Step] = NEWS) -> Iterator[Reason]:
    """Why these steps have something to do: what has come since their last work.

    Declarations are not compared: an edited one takes effect with the next messages, or after an hour. Raises
    BrokerError if a step lands, and the broker does not say.
    """
    try:
        known = _Known(settings, pipeline_of(settings), {each.name: each for each in table_statuses(settings)})
        for step in steps:
            yield from _OF_STEP[step](known)
    except BrokerError:
        raise
    except Exception as error:  # such as a torn file: a step repairs it, or reports it better
        yield Reason(Kind.UNKNOWN, str(error) or type(error).__name__)


def reasons_since(before: Look | None, now: Look | None) -> Iterator[Reason]:
    """What has changed between two looks. None is a look that told nothing."""
    if before is None or now is None:
        yield Reason(Kind.UNKNOWN, "topics and tables can't be compared")
        return
    for name in sorted(before.keys() | now.keys()):
        if before.get(name) != now.get(name):
            yield Reason(Kind.CHANGED, f"{name} has changed")


def new_messages(settings: Settings, topic: Topic) -> Reason | None:
    """Raises BrokerError if the broker does not say."""
    backlog = topic_status(topic, endpoint(settings), settings).backlog
    line = f"{topic.name}: {backlog:,} entries have not landed"
    return Reason(Kind.NEW_MESSAGES, line, backlog) if backlog else None


def new_snapshot(settings: Settings, entity: Entity) -> Reason | None:
    """Why a snapshot of the entity's source is to be read, or its service to be asked."""
    line = _news_of(settings, entity)
    return Reason(Kind.NEW_SNAPSHOT, line, 1) if line else None


def _news_of(settings: Settings, entity: Entity) -> str | None:
    match entity.source:
        case None:
            return None
        case Service():
            return question(settings, pipeline_of(settings), entity)
        case source:
            return news(settings, source)


@dataclass(frozen=True)
class _Known:
    settings: Settings
    pipeline: Pipeline
    statuses: Mapping[str, TableStatus]

    def unread_by(self, tables: Iterable[str]) -> Iterator[Reason]:
        for name in tables:
            lag = self.statuses[name].lag if name in self.statuses else None
            if lag is None:  # there is no table, no checkpoint or no refresh
                yield Reason(Kind.UNRECORDED, f"{name}: no table, or no record of what it has read")
            elif lag:
                yield Reason(Kind.UNREAD, f"{name}: {lag:,} commits of its sources are newer", lag)


def _of_land(known: _Known) -> Iterator[Reason]:
    for topic in known.pipeline.topics:
        if reason := new_messages(known.settings, topic):
            yield reason
        elif topic.bronze_table not in known.statuses:
            yield Reason(Kind.UNRECORDED, f"{topic.bronze_table}: no table")
    for entity in known.pipeline.sources:
        if reason := new_snapshot(known.settings, entity):
            yield reason


def _of_merge(known: _Known) -> Iterator[Reason]:
    return known.unread_by(entity.table.name for entity in known.pipeline.entities)


def _of_enrich(known: _Known) -> Iterator[Reason]:
    for topic in overdue(known.settings, known.pipeline.enrichments):
        yield Reason(Kind.OVERDUE, f"{topic}: intervals are over in which facts had no partner")
    yield from known.unread_by(facts.gold_table for facts in known.pipeline.enrichments)


def _of_reconcile(known: _Known) -> Iterator[Reason]:
    done = {each.topic: each for each in reconciliation_records(known.settings)}
    for topic in known.pipeline.landed:
        if (last := done.get(topic.name)) is None or not last.holds:
            yield Reason(Kind.UNRECONCILED, f"{topic.name}: not reconciled, or messages are missing")
        elif last.at < time.time() - SELDOM.total_seconds():
            yield Reason(Kind.HOUR_PASSED, f"{topic.name} was last reconciled more than an hour ago")
    since = min((each.at for each in done.values()), default=0.0)
    for name in known.pipeline.written:
        if name in known.statuses and known.statuses[name].ran_at.timestamp() > since:
            yield Reason(Kind.CHANGED, f"{name} has changed since the last reconciliation")


def _of_validate(known: _Known) -> Iterator[Reason]:
    return _unvalidated(known, [suite.table for suite in known.pipeline.suites])


def _of_refresh(known: _Known) -> Iterator[Reason]:
    for table in known.pipeline.sql_tables:
        if table.refresh != INCREMENTAL:  # its rows can depend on the time
            yield Reason(Kind.REFRESHED_AS_A_WHOLE, f"{table.name} is declared to be refreshed as a whole")
    yield from known.unread_by(table.name for table in known.pipeline.sql_tables)
    yield from _unvalidated(known, [each.table for each in known.pipeline.sql_suites if each.table in known.statuses])


def _of_publish(known: _Known) -> Iterator[Reason]:
    for topic in known.pipeline.published:
        if (lag := unread_commits(known.settings, f"published.{topic}")) is None:
            yield Reason(Kind.UNRECORDED, f"{topic}: no record of what it has read")
        elif lag:
            yield Reason(Kind.UNREAD, f"{topic}: {lag:,} commits of its table are newer", lag)


_OF_STEP: Mapping[Step, Callable[[_Known], Iterator[Reason]]] = {
    Step.LAND: _of_land,
    Step.MERGE: _of_merge,
    Step.ENRICH: _of_enrich,
    Step.RECONCILE: _of_reconcile,
    Step.VALIDATE: _of_validate,
    Step.REFRESH: _of_refresh,
    Step.PUBLISH: _of_publish,
}


def _unvalidated(known: _Known, tables: Iterable[str]) -> Iterator[Reason]:
    validated = last_validated(known.settings)
    for table in tables:
        last, status = validated.get(table), known.statuses.get(table)
        if last is None or status is None or last.version != status.version:
            yield Reason(Kind.UNVALIDATED, f"{table} has changed since its last validation, or was never validated")
        elif last.whole_at is None:
            yield Reason(Kind.UNVALIDATED, f"{table} did not pass its validation")
        elif last.at < datetime.now(UTC) - SELDOM:
            yield Reason(Kind.HOUR_PASSED, f"{table} was last validated at {last.at:%H:%M}")
