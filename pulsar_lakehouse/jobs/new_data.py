"""Whether a run of the pipeline would find anything to do, and much or little of it, found without Spark."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from pulsar_lakehouse.contracts.topics import Topic
from pulsar_lakehouse.expectations.results import last_validated
from pulsar_lakehouse.expectations.suites import Suite
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


def is_little(settings: Settings) -> bool:
    """Whether tables and backlogs are so small that Spark's planning and compiling are most of a run."""
    try:
        stored = sum(status.size for status in table_statuses(settings))
        topics = (topic_status(topic, endpoint(settings), settings) for topic in pipeline_of(settings).topics)
        return stored + sum(topic.backlog_bytes for topic in topics) <= LITTLE
    except Exception:  # such as a torn file: it does not matter here
        return False


def news(settings: Settings) -> str:
    """One line about what a run would find; empty if nothing arrived since the pipeline's own tables passed validation.

    Declarations are not compared: an edited one takes effect with the next messages, or after an hour.
    """
    try:
        pipeline, statuses = pipeline_of(settings), table_statuses(settings)
        return (
            _not_landed(settings, pipeline.topics)
            or _not_read(pipeline, statuses)
            or _not_validated(settings, pipeline.suites, statuses)
        )
    except Exception as error:  # such as a torn file: a run repairs it, or reports it better
        return str(error) or type(error).__name__


def _not_landed(settings: Settings, topics: Sequence[Topic]) -> str:
    for topic in topics:
        if backlog := topic_status(topic, endpoint(settings), settings).backlog:
            return f"{topic.name}: {backlog:,} entries have not landed"
    return ""


def _not_read(pipeline: Pipeline, statuses: Sequence[TableStatus]) -> str:
    for table in pipeline.sql_tables:
        if table.refresh != INCREMENTAL:  # its rows can depend on the time
            return f"{table.name} is declared to be refreshed as a whole"
    lags = {status.name: status.lag for status in statuses}
    streams = [
        *(entity.table.name for entity in pipeline.entities),
        *(facts.gold_table for facts in pipeline.enrichments),
    ]
    for name in (*streams, *(table.name for table in pipeline.sql_tables)):
        lag = lags.get(name)
        if lag is None:  # there is no table, no checkpoint or no refresh
            return f"{name}: no table, or no record of what it has read"
        if lag:
            return f"{name}: {lag:,} commits of its sources are newer"
    return ""


def _not_validated(settings: Settings, suites: Sequence[Suite], statuses: Sequence[TableStatus]) -> str:
    validated = last_validated(settings)
    versions = {status.name: status.version for status in statuses}
    for suite in suites:
        last = validated.get(suite.table)
        if last is None or last.version != versions.get(suite.table):
            return f"{suite.table} has changed since its last validation, or was never validated"
        if last.whole_at is None:
            return f"{suite.table} did not pass its validation"
        if last.at < datetime.now(UTC) - SELDOM:
            return f"{suite.table} was last validated at {last.at:%H:%M}"
    return ""
