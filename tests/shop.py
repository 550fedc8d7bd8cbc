"""The shop that comes with this package, as tests use it."""

from lakehouse.settings import SHIPPED
from pipeline.loading import load

QUERIES = SHIPPED.parent / "queries"
SHOP = load(SHIPPED).pipeline
ENTITIES, ENRICHMENTS, SQL_TABLES = SHOP.entities, SHOP.enrichments, SHOP.sql_tables
TOPICS, WRITTEN, PUBLISHED, SUITES = SHOP.topics, SHOP.written, SHOP.published, SHOP.suites
