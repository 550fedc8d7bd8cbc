"""The lines of orders, each with its order, its customer and its product as they were when it came.

The database only inserts lines, so they are facts, and not state.
"""

from pulsar_lakehouse import Debezium, Enrichment, KeyEncoding, Lookup, Topic, quarantine

from .database import CUSTOMERS, ORDERS, PRODUCTS

ORDER_LINES = Enrichment(
    topic=Topic(
        "order_lines",
        """
        order_id BIGINT NOT NULL, line INT NOT NULL, sku STRING NOT NULL, quantity INT NOT NULL,
        __source_ts_ms TIMESTAMP_MILLIS
        """,
        topic="inventory.public.order_lines",
        key_encoding=KeyEncoding.JSON,
        envelope=Debezium(),
    ),
    columns="order_id, line, sku, quantity, __source_ts_ms AS committed",
    keys=("order_id", "line"),
    event_time="committed",
    day="day",
    lookups=(
        Lookup(name="order", entity=ORDERS, on="order_id", join="as_of"),
        Lookup(name="customer", entity=CUSTOMERS, on="order.customer_id", join="as_of"),
        Lookup(name="product", entity=PRODUCTS, on="sku", join="as_of"),
    ),
    checks={"quantity_is_positive": quarantine("quantity > 0")},
    dedup_days=3650,  # a second snapshot tells all lines again, with its own time
    correction_days=3650,  # the recorded lines are from November 2026, whenever they are sent
)
