"""The orders topic, how orders are enriched, and the checks of enriched orders."""

from pulsar_lakehouse import Enrichment, Lookup, Topic, quarantine, warn

from .items import ITEMS
from .users import USERS

ORDERS_TOPIC = Topic(
    "orders",
    """
        invoiceId BIGINT NOT NULL,
        lineItemId BIGINT NOT NULL,
        userId BIGINT NOT NULL,
        itemId BIGINT NOT NULL,
        itemName STRING,
        itemCategory STRING,
        price DOUBLE NOT NULL,
        createdAt TIMESTAMP_MILLIS NOT NULL,
        paidAt TIMESTAMP_MILLIS
    """,
    record="Order",
)

ORDERS = Enrichment(
    topic=ORDERS_TOPIC,
    columns="""
        invoiceId AS invoice_id, lineItemId AS line_item_id, userId AS user_id, itemId AS item_id,
        itemName AS item_name, itemCategory AS item_category, price, createdAt AS created_at, paidAt AS paid_at
    """,
    keys=("invoice_id", "line_item_id"),
    event_time="created_at",
    day="order_date",
    lookups=(
        Lookup(
            name="user",
            entity=USERS,
            on="user_id",
            merged_into="CASE WHEN merged_at IS NOT NULL THEN parent_user_id END",
        ),
        Lookup(name="item", entity=ITEMS, on="item_id", join="as_of"),
    ),
    checks={
        # fits into DECIMAL(18, 2), and is not NaN
        "price_is_an_amount": quarantine("price >= 0 AND price < 1e15"),
        "price_is_plausible": warn("price <= 100000"),
        "is_paid_after_creation": quarantine("paid_at IS NULL OR paid_at >= created_at"),
        "is_paid_within_a_month": warn("paid_at IS NULL OR paid_at < created_at + INTERVAL 31 DAYS"),
        "created_in_this_age": warn("created_at BETWEEN '2000-01-01' AND now() + INTERVAL 1 DAY"),
    },
    correction_days=3650,  # the workload's orders are from January 2026, whenever it is sent
    publish_to="enriched_orders",
)
