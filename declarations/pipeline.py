"""All topics and tables of this lakehouse. Add your own here: no other module lists them."""

from collections.abc import Mapping
from pathlib import Path

from declarations.items import ITEMS, ITEMS_SUITE
from declarations.orders import ENRICHED_ORDERS_SUITE, ORDERS
from declarations.users import USERS, USERS_SUITE
from expectations import quarantine
from expectations.bronze import landed
from expectations.silver import versions
from expectations.sql_tables import declared
from expectations.suites import Suite
from gold.enrichment.declaration import Enrichment
from gold.sql.declaration import SqlTable, declared_in
from lakehouse.contracts.topics import Topic
from lakehouse.errors import ConfigurationError
from silver.entity import Entity

ENTITIES: tuple[Entity, ...] = (USERS, ITEMS)
"""Changelogs, merged into silver."""

ENRICHMENTS: tuple[Enrichment, ...] = (ORDERS,)
"""Facts, enriched into gold."""

SQL_TABLES: tuple[SqlTable, ...] = declared_in(Path(__file__).parent / "sql")
"""Gold tables that are declared in SQL, each after those that it is made from."""

PUBLISHED: Mapping[str, Enrichment] = {each.publish_to: each for each in ENRICHMENTS if each.publish_to}
"""Enrichments whose gold table is published, by the topic that it is published to."""

TOPICS: tuple[Topic, ...] = (
    *(entity.topic for entity in ENTITIES),
    *(enrichment.topic for enrichment in ENRICHMENTS),
)

WRITTEN = (
    *(topic.bronze_table for topic in TOPICS),
    *(entity.table.name for entity in ENTITIES),
    *(enrichment.gold_table for enrichment in ENRICHMENTS),
)
"""The tables that have a stream of their own. Only one process at a time writes each of them."""

SUITES: tuple[Suite, ...] = (
    *(landed(entity.topic, quiet_for="30 DAYS") for entity in ENTITIES),
    *(landed(each.topic, placed=each.places, quiet_for="1 DAY") for each in ENRICHMENTS),
    USERS_SUITE,
    ITEMS_SUITE,
    *(versions(entity) for entity in ENTITIES if entity.keeps_history),
    ENRICHED_ORDERS_SUITE,
    *(quarantine.waiting(each, at_most=0.05) for each in ENRICHMENTS),
    *(quarantine.duplicates(each, at_most=0.02) for each in ENRICHMENTS),
    *(quarantine.discarded(each) for each in ENRICHMENTS),
    quarantine.malformed(TOPICS, at_most=0.01),
)
"""The rules that `lakehouse validate` evaluates. For an entity of your own, add a suite made by `latest`, and for an
enrichment one made by `enriched`, with rules of its own."""

SQL_SUITES: tuple[Suite, ...] = (*(declared(table) for table in SQL_TABLES), quarantine.sql_rows())
"""The rules for tables that are declared in SQL, once they exist, and for the rows that they leave out."""


def facts_named(topic: str) -> Enrichment:
    """The enrichment of a topic of facts. Raises ConfigurationError if there is none."""
    known = {enrichment.topic.name: enrichment for enrichment in ENRICHMENTS}
    if topic not in known:
        raise ConfigurationError(f"{topic}: no such facts; there are {', '.join(known)}")
    return known[topic]


def _check() -> None:
    published = [each.publish_to for each in ENRICHMENTS if each.publish_to]
    names = [*(topic.name for topic in TOPICS), *published, *(table.topic for table in SQL_TABLES if table.topic)]
    if len(names) != len(set(names)):
        raise ConfigurationError(f"a topic is declared twice: {', '.join(sorted(names))}")
    targets = [table.postgres.removeprefix("public.") for table in SQL_TABLES if table.postgres]
    if len(targets) != len(set(targets)):
        raise ConfigurationError(f"a table in Postgres is declared twice: {', '.join(sorted(targets))}")
    own = {table for enrichment in ENRICHMENTS for table in (enrichment.gold_table, enrichment.shadow)}
    if taken := own & {table.name for table in SQL_TABLES}:
        raise ConfigurationError(f"{min(taken)} is declared twice, by a SQL file and by an enrichment")
    for enrichment in ENRICHMENTS:
        for lookup in enrichment.lookups:
            if lookup.entity not in ENTITIES:
                known = ", ".join(entity.name for entity in ENTITIES)
                raise ConfigurationError(
                    f"{enrichment.topic.name}: lookup {lookup.name} is of {lookup.entity.name}, "
                    f"which is not in ENTITIES; there are {known}"
                )


_check()
