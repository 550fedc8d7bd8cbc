"""The shop that comes with this package, as tests use it."""

from pulsar_lakehouse.gold.enrichment.declaration import Enrichment
from pulsar_lakehouse.pipeline.loading import load
from pulsar_lakehouse.settings import SHIPPED
from tests.oracle_lookups import Join, Match

QUERIES = SHIPPED.parent / "queries"
SHOP = load(SHIPPED).pipeline
ENTITIES, ENRICHMENTS, SQL_TABLES = SHOP.entities, SHOP.enrichments, SHOP.sql_tables
TOPICS, WRITTEN, PUBLISHED, SUITES = SHOP.topics, SHOP.written, SHOP.published, SHOP.suites


def joins_of(orders: Enrichment) -> tuple[Join, ...]:
    """The lookups as the oracle has them. It knows merges of users only."""
    return tuple(
        Join(
            name=each.name,
            entity=each.entity.name,
            on=each.paths,
            keys=each.entity.keys,
            is_as_of=each.is_as_of,
            required=each.required,
            follows_merges=each.merged_into is not None,
            max_merges=each.max_merges,
        )
        for each in orders.lookups
    )


def matches_of(orders: Enrichment) -> tuple[Match, ...]:
    """The interval joins as the oracle has them. It knows those on one column."""
    return tuple(
        Match(
            name=each.name,
            entity=each.entity.name,
            on=each.paths[0],
            by=each.columns[0],
            time=each.time,
            low=each.span[0],
            high=each.span[1],
            wait=each.wait,
            is_first=each.each == "first",
            required=each.required,
        )
        for each in orders.matches
    )
