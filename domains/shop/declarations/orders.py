"""The orders topic, how orders are enriched, and the rules for enriched orders."""

from expectations.gold import enriched
from expectations.suites import Severity, each_row
from gold.enrichment.declaration import Enrichment, Lookup
from lakehouse.contracts.topics import Topic

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
    columns={
        "invoice_id": "invoiceId",
        "line_item_id": "lineItemId",
        "user_id": "userId",
        "item_id": "itemId",
        "item_name": "itemName",
        "item_category": "itemCategory",
        "price": "price",
        "created_at": "createdAt",
        "paid_at": "paidAt",
    },
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
    rules={
        "price_is_an_amount": "price >= 0 AND price < 1e15",  # fits into DECIMAL(18, 2), and is not NaN
        "is_paid_after_creation": "paid_at IS NULL OR paid_at >= created_at",
    },
    correction_days=3650,  # the workload's orders are from January 2026, whenever it is sent
    publish_to="enriched_orders",
)

ENRICHED_ORDERS_SUITE = enriched(
    ORDERS,
    each_row("user_is_its_own_or_what_that_was_merged_into", "user.id = user_id OR user_merged[0] = user_id"),
    each_row("item_is_its_own", "item.id = item_id"),
    each_row("state_was_not_deleted_before", "coalesce(least(user.deleted_at, item.deleted_at) > created_at, true)"),
    each_row("created_in_this_age", "created_at BETWEEN '2000-01-01' AND now() + INTERVAL 1 DAY", Severity.WARNING),
    each_row("is_of_its_day", "order_date = to_date(created_at)"),
    each_row("price_is_plausible", "price BETWEEN 0 AND 100000", Severity.WARNING),
    each_row("paid_within_a_month", "paid_at IS NULL OR paid_at < created_at + INTERVAL 31 DAYS", Severity.WARNING),
)
