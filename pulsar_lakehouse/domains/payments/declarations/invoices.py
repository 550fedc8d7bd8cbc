"""Invoices of two topics, each with its region, the risk of its card, and the payments of the hour after it."""

from pulsar_lakehouse import Enrichment, Lookup, Match, Topic, quarantine

from .events import PAYMENTS
from .issuers import ISSUERS
from .regions import REGIONS

INVOICES = Enrichment(
    topic=Topic(
        "invoices",
        """
        id STRING NOT NULL, regionCode STRING NOT NULL, card STRING NOT NULL, cents BIGINT NOT NULL,
        issuedAt TIMESTAMP_MILLIS NOT NULL
        """,
        topic=("invoices-eu", "invoices-us"),
    ),
    columns="""
        id,
        regionCode AS region_code,
        network(card) AS network,
        left(card, 6) AS issuer_number,
        cents,
        issuedAt AS issued_at
    """,
    keys=("id",),
    event_time="issued_at",
    day="day",
    lookups=(
        Lookup(name="region", entity=REGIONS, on="region_code"),
        Lookup(name="issuer", entity=ISSUERS, on="issuer_number"),
    ),
    matches=(
        Match(
            name="payments",
            entity=PAYMENTS,
            on="id",
            by="invoice_id",
            time="paid_at",
            within="1 hour",
            each="all",
            required=False,
        ),
    ),
    checks={"cents_are_positive": quarantine("cents > 0")},
    correction_days=3650,  # the workload's invoices are from January 2026, whenever it is sent
)
