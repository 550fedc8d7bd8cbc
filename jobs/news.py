"""Whether a run of the pipeline would find anything to do. Without Spark."""

from datetime import UTC, datetime, timedelta

from expectations.results import last_validated
from gold.declarations import INCREMENTAL
from jobs.pipeline import SQL_TABLES, SUITES, TOPICS
from lakehouse.broker import endpoint
from lakehouse.errors import LakehouseError
from lakehouse.settings import Settings
from lakehouse.status import table_statuses, topic_status

SELDOM = timedelta(hours=1)
"""After that, all is looked at again though nothing has come: some rules tell of topics that are too quiet."""


def news(settings: Settings) -> str:
    """What a run would find, in a line; empty if nothing has come since tables were validated, all of which passed."""
    try:
        return _not_landed(settings) or _not_read(settings) or _not_validated(settings)
    except LakehouseError as error:  # a run will say so better
        return str(error)


def _not_landed(settings: Settings) -> str:
    for topic in TOPICS:
        if backlog := topic_status(topic, endpoint(settings), settings).backlog:
            return f"{topic.name}: {backlog:,} entries have not landed"
    return ""


def _not_read(settings: Settings) -> str:
    for table in SQL_TABLES:
        if table.refresh != INCREMENTAL:  # it can depend on the time
            return f"{table.name} is declared to be refreshed as a whole"
    lags = {status.name: status.lag for status in table_statuses(settings)}
    for name, lag in lags.items():
        if lag:
            return f"{name}: {lag:,} commits of its sources are newer"
    missing = [table.name for table in SQL_TABLES if table.name not in lags]
    return f"{missing[0]} is not there yet" if missing else ""


def _not_validated(settings: Settings) -> str:
    validated = last_validated(settings)
    versions = {status.name: status.version for status in table_statuses(settings)}
    for suite in SUITES:
        last = validated.get(suite.table)
        if last is None or last.version != versions.get(suite.table):
            return f"{suite.table} has not been validated as it is now"
        if last.whole_at is None:
            return f"{suite.table} did not pass its validation"
        if last.at < datetime.now(UTC) - SELDOM:
            return f"{suite.table} was last validated at {last.at:%H:%M}"
    return ""
