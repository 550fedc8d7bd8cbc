"""What this lakehouse is made of. Add your own topics here; no other module lists them."""

from collections.abc import Mapping

from gold.enrichment import Enrichment
from gold.orders import ORDERS
from lakehouse.errors import ConfigurationError
from lakehouse.topics import Topic
from silver.entity import Entity
from silver.items import ITEMS
from silver.users import USERS

ENTITIES: tuple[Entity, ...] = (USERS, ITEMS)
"""Changelogs, merged into silver."""

ENRICHMENTS: tuple[Enrichment, ...] = (ORDERS,)
"""Facts, enriched into gold."""

PUBLISHED: Mapping[str, Enrichment] = {each.publish_to: each for each in ENRICHMENTS if each.publish_to}
"""Enrichments whose gold is published, by its topic."""

TOPICS: tuple[Topic, ...] = (
    *(entity.topic for entity in ENTITIES),
    *(enrichment.topic for enrichment in ENRICHMENTS),
)

WRITTEN = (
    *(topic.bronze_table for topic in TOPICS),
    *(entity.table.name for entity in ENTITIES),
    *(enrichment.gold_table for enrichment in ENRICHMENTS),
)
"""The tables that have a stream of their own, each of which one process at a time writes."""


def facts_named(topic: str) -> Enrichment:
    """The enrichment of a topic of facts. Raises ConfigurationError if there is none."""
    known = {enrichment.topic.name: enrichment for enrichment in ENRICHMENTS}
    if topic not in known:
        raise ConfigurationError(f"{topic}: no such facts; there are {', '.join(known)}")
    return known[topic]


def _check() -> None:
    published = [each.publish_to for each in ENRICHMENTS if each.publish_to]
    names = [*(topic.name for topic in TOPICS), *published]
    if len(names) != len(set(names)):
        raise ConfigurationError(f"a topic is declared twice: {', '.join(sorted(names))}")
    entities = {entity.name: entity for entity in ENTITIES}
    for enrichment in ENRICHMENTS:
        for lookup in enrichment.lookups:
            if lookup.entity not in entities:
                known = ", ".join(sorted(entities))
                raise ConfigurationError(
                    f"{enrichment.topic.name} looks up {lookup.entity}, which is no entity; there are {known}"
                )
            entity = entities[lookup.entity]
            if lookup.is_as_of and (entity.keeps_older or not entity.keeps_history):
                raise ConfigurationError(
                    f"{enrichment.topic.name} joins {entity.name} as of a time, which needs a history of whole updates"
                )


_check()
