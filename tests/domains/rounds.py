"""Runs all of a domain's pipeline on a real broker, and shows what its tables and topics hold then."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from pulsar_lakehouse.domains import DOMAINS
from pulsar_lakehouse.jobs.delivery import publishing, refreshing
from pulsar_lakehouse.jobs.steps import reconcile_all, run_all
from pulsar_lakehouse.jobs.streams import catch_up
from pulsar_lakehouse.pipeline.loading import load, pipeline_of
from pulsar_lakehouse.pulsar.endpoint import Endpoint
from pulsar_lakehouse.pulsar.produce import Message, produce
from pulsar_lakehouse.pulsar.topic_admin import create_published
from pulsar_lakehouse.pulsar.topic_names import by_name
from pulsar_lakehouse.settings import Settings
from pulsar_lakehouse.tables.lake import Lake
from tests.lake import own_topics, read
from tests.oracle_lookups import Row
from tests.published import published, seen, sent

Phase = Callable[[str], Iterator[Message]]


def lake_of(domain: str, settings: Settings, endpoint: Endpoint, home: Path) -> Settings:
    """Settings of a domain with its own home, and its own topics in the shared broker, which are created."""
    declarations = DOMAINS[domain] / "declarations"
    own = own_topics(settings, endpoint, home, load(declarations).pipeline.topics)
    own = own.model_copy(update={"declarations": declarations})
    create_published(pipeline_of(own).published_topics, endpoint, own)
    return own


def send(phase: Phase, endpoint: Endpoint, project: Settings) -> dict[str, list[Message]]:
    """Send a phase of a workload. Returns its messages by topic."""
    topics = by_name(pipeline_of(project).topics)
    messages = {name: list(phase(name)) for name in topics}
    produce([(topic, messages[name]) for name, topic in topics.items()], endpoint, project)
    return messages


def run(lake: Lake) -> None:
    """Land, merge, enrich, refresh and publish."""
    pipeline = pipeline_of(lake.settings)
    list(run_all(lake))
    list(refreshing(lake, pipeline.sql_tables))
    catch_up(lake.settings, publishing(lake, pipeline.published.values()))


def unaccounted(lake: Lake) -> dict[str, object]:
    """What does not reconcile, by topic."""
    return {each.topic: each.problems or each.difference for each in reconcile_all(lake) if not each.holds}


def in_table(project: Settings, table: str, keys: Sequence[str], like: Row) -> dict[Any, Row]:
    """The rows of a table by their keys, with the columns and the fields of structs that `like` has."""
    return by(keys, (_like(like, row) for row in read(project, table)))


def in_topic(project: Settings, endpoint: Endpoint, topic: str, keys: Sequence[str], like: Row) -> dict[Any, Row]:
    """What a consumer holds that keeps the last message of each key: the same for a topic."""
    return by(keys, (_like(like, row) for row in seen(sent(project, endpoint, topic)).values()))


def as_published(keys: Sequence[str], rows: Iterable[Row]) -> dict[Any, Row]:
    """Rows as a topic has them, by their keys."""
    return by(keys, map(published, rows))


def by(keys: Sequence[str], rows: Iterable[Row]) -> dict[Any, Row]:
    listed = [(tuple(row[key] for key in keys), row) for row in rows]
    assert len(dict(listed)) == len(listed), "keys are unique"
    return dict(listed)


def _like(like: Any, value: Any) -> Any:
    if isinstance(like, dict) and isinstance(value, dict):
        return {name: _like(part, value[name]) for name, part in like.items() if name in value}
    return value
