"""All that a project declares, and what follows from it: its topics, the tables with a stream, and all suites."""

from collections.abc import Mapping
from dataclasses import dataclass
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
    def topics(self) -> tuple[Topic, ...]:
        """The topics in Pulsar."""
        changelogs = (each.topic for each in self.entities if each.source is None)
        return (*changelogs, *(each.topic for each in self.enrichments))

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
            *(topic.bronze_table for topic in self.landed),
            *(entity.table.name for entity in self.entities),
            *(enrichment.gold_table for enrichment in self.enrichments),
        )

    @cached_property
    def suites(self) -> tuple[Suite, ...]:
        """The rules that `lakehouse validate` evaluates."""
        return (
            *(landed(each.topic, quiet_for="" if each.source else "30 DAYS") for each in self.entities),
            *(landed(each.topic, placed=each.places, quiet_for="1 DAY") for each in self.enrichments),
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
