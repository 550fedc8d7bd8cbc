"""Whether there is anything new for the pipeline: the reasons to run it, and whether it is little.

No reason means that there is nothing new. Airflow's runs and its backlog's trigger ask for `reasons` and
`new_messages`; `lakehouse run --every` compares two looks by `reasons_since`. None of them needs Spark.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum

from pulsar_lakehouse.contracts.topics import Topic
from pulsar_lakehouse.expectations.results import Validated, last_validated
from pulsar_lakehouse.gold.sql.header import INCREMENTAL
from pulsar_lakehouse.inspection.table_status import TableStatus, table_statuses
from pulsar_lakehouse.local.broker import endpoint
from pulsar_lakehouse.pipeline.declared import Pipeline
from pulsar_lakehouse.pipeline.loading import pipeline_of
from pulsar_lakehouse.pulsar.backlog import topic_status
from pulsar_lakehouse.settings import Settings

SELDOM = timedelta(hours=1)
"""Longest time between two validations, even if nothing arrives: some rules detect topics that are too quiet."""

LITTLE = 16 * 2**20
"""Bytes of tables and backlogs that a run is short for: a few hundred thousand messages."""

Look = Mapping[str, object]
"""The states of topics and tables, by name."""


class Kind(StrEnum):
    NEW_MESSAGES = "new messages"
    CHANGED = "changed"
    UNREAD = "unread commits"
    UNRECORDED = "no record"
    REFRESHED_AS_A_WHOLE = "refreshed as a whole"
    UNVALIDATED = "not validated"
    HOUR_PASSED = "an hour has passed"
    REQUESTED = "requested"
    UNKNOWN = "not known"


@dataclass(frozen=True)
class Reason:
    kind: Kind
    line: str
    count: int = 0
    """Of the entries or commits."""


def is_little(settings: Settings) -> bool:
    """Whether tables and backlogs are so small that Spark's planning and compiling are most of a run."""
    try:
        stored = sum(status.size for status in table_statuses(settings))
        topics = (topic_status(topic, endpoint(settings), settings) for topic in pipeline_of(settings).topics)
        return stored + sum(topic.backlog_bytes for topic in topics) <= LITTLE
    except Exception:  # such as a torn file: it does not matter here
        return False


def reasons(settings: Settings) -> Iterator[Reason]:
    """What has come since the pipeline's own tables passed validation.

    Declarations are not compared: an edited one takes effect with the next messages, or after an hour.
    """
    try:
        pipeline, statuses = pipeline_of(settings), {status.name: status for status in table_statuses(settings)}
        for topic in pipeline.topics:
            if reason := new_messages(settings, topic):
                yield reason
        yield from _unread(pipeline, statuses)
        validated = last_validated(settings)
        for suite in pipeline.suites:
            yield from _unvalidated(suite.table, validated.get(suite.table), statuses.get(suite.table))
    except Exception as error:  # such as a torn file: a run repairs it, or reports it better
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


def _unread(pipeline: Pipeline, statuses: Mapping[str, TableStatus]) -> Iterator[Reason]:
    for table in pipeline.sql_tables:
        if table.refresh != INCREMENTAL:  # its rows can depend on the time
            yield Reason(Kind.REFRESHED_AS_A_WHOLE, f"{table.name} is declared to be refreshed as a whole")
    streams = [*(each.table.name for each in pipeline.entities), *(each.gold_table for each in pipeline.enrichments)]
    for name in (*streams, *(table.name for table in pipeline.sql_tables)):
        lag = statuses[name].lag if name in statuses else None
        if lag is None:  # there is no table, no checkpoint or no refresh
            yield Reason(Kind.UNRECORDED, f"{name}: no table, or no record of what it has read")
        elif lag:
            yield Reason(Kind.UNREAD, f"{name}: {lag:,} commits of its sources are newer", lag)


def _unvalidated(table: str, last: Validated | None, status: TableStatus | None) -> Iterator[Reason]:
    if last is None or status is None or last.version != status.version:
        yield Reason(Kind.UNVALIDATED, f"{table} has changed since its last validation, or was never validated")
    elif last.whole_at is None:
        yield Reason(Kind.UNVALIDATED, f"{table} did not pass its validation")
    elif last.at < datetime.now(UTC) - SELDOM:
        yield Reason(Kind.HOUR_PASSED, f"{table} was last validated at {last.at:%H:%M}")
