"""All that a project declares, and what follows from it: its topics, the tables with a stream, and all suites."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from pulsar_lakehouse.contracts.services import Service
from pulsar_lakehouse.contracts.topics import Topic
from pulsar_lakehouse.errors import ConfigurationError
from pulsar_lakehouse.expectations import quarantine
from pulsar_lakehouse.expectations.bronze import landed
from pulsar_lakehouse.expectations.gold import enriched
from pulsar_lakehouse.expectations.silver import latest, versions
from pulsar_lakehouse.expectations.sql_tables import declared
from pulsar_lakehouse.expectations.suites import Suite
from pulsar_lakehouse.gold.enrichment.declaration import Enrichment
from pulsar_lakehouse.gold.sql.declaration import SqlTable
from pulsar_lakehouse.silver.entity import Entity
from pulsar_lakehouse.spark.functions import Function


@dataclass(frozen=True, kw_only=True)
class Pipeline:
    entities: tuple[Entity, ...]
    """Changelogs, merged into silver."""
    enrichments: tuple[Enrichment, ...]
    """Facts, enriched into gold."""
    sql_tables: tuple[SqlTable, ...]
    """Gold tables that are declared in SQL, each after those that it is made from."""
    functions: tuple[Function, ...] = ()
    """Those of the project's own that SQL can call."""

    @cached_property
    def landed(self) -> tuple[Topic, ...]:
        """What lands in bronze: the topics, and the changes of sources as those of topics."""
        return (*(each.topic for each in self.entities), *(each.topic for each in self.enrichments))

    @cached_property
    def bronze(self) -> tuple[Topic, ...]:
        """What lands, each once, also if it has several kinds."""
        return _each_once(self.landed)

    @cached_property
    def topics(self) -> tuple[Topic, ...]:
        """The topics in Pulsar, as they land."""
        changelogs = (each.topic for each in self.entities if each.source is None)
        return _each_once((*changelogs, *(each.topic for each in self.enrichments)))

    @cached_property
    def with_kinds(self) -> tuple[Topic, ...]:
        """Those of them that have several kinds."""
        return tuple(topic for topic in self.topics if topic.where)

    def kinds_of(self, bronze_table: str) -> tuple[tuple[str, str], ...]:
        """The name and the `where` of each kind of message in a bronze table."""
        kinds = (each for each in self.landed if each.where)
        return tuple((each.name, each.where) for each in kinds if each.bronze_table == bronze_table)

    @cached_property
    def kinds_in_pulsar(self) -> Mapping[str, Topic]:
        """By name, what is declared of topics in Pulsar: each kind of their messages."""
        sources = {each.name for each in self.sources}
        return {each.name: each for each in self.landed if each.name not in sources}

    @cached_property
    def sources(self) -> tuple[Entity, ...]:
        """The entities whose state no topic has."""
        return tuple(each for each in self.entities if each.source is not None)

    @cached_property
    def services(self) -> tuple[Entity, ...]:
        """Those of them that services are asked for."""
        return tuple(each for each in self.sources if isinstance(each.source, Service))

    @cached_property
    def published(self) -> Mapping[str, Enrichment]:
        """Enrichments whose gold table is published, by the topic that it is published to."""
        return {each.publish_to: each for each in self.enrichments if each.publish_to}

    @cached_property
    def published_topics(self) -> tuple[str, ...]:
        """The topics of all gold tables that are published."""
        return (*self.published, *(table.topic for table in self.sql_tables if table.topic))

    @cached_property
    def written(self) -> tuple[str, ...]:
        """The tables that have a stream of their own. Only one process at a time writes each of them."""
        return (
            *(topic.bronze_table for topic in self.bronze),
            *(entity.table.name for entity in self.entities),
            *(enrichment.gold_table for enrichment in self.enrichments),
        )

    @cached_property
    def suites(self) -> tuple[Suite, ...]:
        """The rules that `lakehouse validate` evaluates."""
        return (
            *_landed(self.entities, self.enrichments),
            *(landed(topic, quiet_for="1 DAY") for topic in self.with_kinds),
            *(latest(entity) for entity in self.entities),
            *(versions(entity) for entity in self.entities if entity.keeps_history),
            *(enriched(each) for each in self.enrichments),
            *(quarantine.waiting(each, at_most=0.05) for each in self.enrichments),
            *(quarantine.duplicates(each, at_most=0.02) for each in self.enrichments),
            *(quarantine.discarded(each) for each in self.enrichments),
            quarantine.malformed(self.landed, at_most=0.01),
        )

    @cached_property
    def sql_suites(self) -> tuple[Suite, ...]:
        """The rules for tables that are declared in SQL, once they exist, and for the rows that they leave out."""
        return (*(declared(table) for table in self.sql_tables), quarantine.sql_rows())

    def merges_of(self, entity: Entity) -> list[str]:
        """The SQL, in lookups of the entity, for the key into which a row was merged."""
        lookups = (lookup for each in self.enrichments for lookup in each.lookups if lookup.entity == entity)
        return sorted({lookup.merged_into for lookup in lookups if lookup.merged_into is not None})

    def facts_named(self, topic: str) -> Enrichment:
        """The enrichment of a topic; without a name, the only one. Raises ConfigurationError if there is none."""
        known = {each.topic.name: each for each in self.enrichments}
        if not known:
            raise ConfigurationError("no facts are declared")
        name = topic or next(iter(known))
        if not topic and len(known) > 1:
            raise ConfigurationError(f"name the topic of the facts: there are {', '.join(known)}")
        if name not in known:
            raise ConfigurationError(f"{topic}: no such facts; there are {', '.join(known)}")
        return known[name]


def _landed(entities: Iterable[Entity], enrichments: Iterable[Enrichment]) -> Iterator[Suite]:
    """The suites of the bronze tables in which one kind of messages lands."""
    for entity in entities:
        if not entity.topic.where:
            yield landed(entity.topic, quiet_for="" if entity.source else "30 DAYS")
    for facts in enrichments:
        if not facts.topic.where:
            yield landed(facts.topic, placed=facts.places, quiet_for="1 DAY")


def _each_once(topics: Iterable[Topic]) -> tuple[Topic, ...]:
    """The topics as they land. One with several kinds is a changelog if one of them is."""
    found: dict[str, Topic] = {}
    for topic in topics:
        known = found.setdefault(topic.bronze_table, topic.landing)
        if topic.changelog and not known.changelog:
            found[topic.bronze_table] = replace(known, changelog=True)
    return tuple(found.values())
