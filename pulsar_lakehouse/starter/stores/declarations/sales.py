"""Sales: facts, each joined with its store. A sale whose store is not known yet waits for it in quarantine."""

from declarations.stores import STORES
from pulsar_lakehouse import Enrichment, Lookup, Topic, quarantine

SALES = Enrichment(
    topic=Topic(
        "sales", "id BIGINT NOT NULL, storeId BIGINT NOT NULL, cents BIGINT NOT NULL, soldAt TIMESTAMP_MILLIS NOT NULL"
    ),
    columns="""
        id,
        storeId AS store_id,
        CAST(cents / 100 AS DECIMAL(18, 2)) AS price,
        soldAt AS sold_at
    """,
    keys=("id",),
    event_time="sold_at",
    day="sale_date",
    lookups=(Lookup(entity=STORES, on="store_id", name="store"),),
    checks={"price_is_an_amount": quarantine("price >= 0")},
)
