"""Tables of the database that replicate to silver: drafted by `lakehouse init --from-topics`, and put into one file."""

from pulsar_lakehouse import Debezium, Entity, KeyEncoding, Topic, warn

CUSTOMERS = Entity(
    topic=Topic(
        "customers",
        """
        id INT NOT NULL, name STRING NOT NULL, email STRING, city STRING NOT NULL, notes STRING,
        registered TIMESTAMP NOT NULL, __source_lsn BIGINT, __source_ts_ms TIMESTAMP_MILLIS
        """,
        topic="inventory.public.customers",
        key_encoding=KeyEncoding.JSON,
        envelope=Debezium(),
        changelog=True,
    ),
    key="id",
    columns="id, name, email, city, notes, registered, __source_lsn AS lsn",
    sequence_by="lsn",
    occurred_at="__source_ts_ms",
)

PRODUCTS = Entity(
    topic=Topic(
        "products",
        """
        sku STRING NOT NULL, name STRING NOT NULL, price DECIMAL(10, 2) NOT NULL, stock INT NOT NULL,
        discontinued DATE, __source_lsn BIGINT, __source_ts_ms TIMESTAMP_MILLIS
        """,
        topic="inventory.public.products",
        key_encoding=KeyEncoding.JSON,
        envelope=Debezium(),
        changelog=True,
    ),
    key="sku",
    columns="sku, name, price, stock, discontinued, __source_lsn AS lsn",
    sequence_by="lsn",
    occurred_at="__source_ts_ms",
    checks={"stock_is_not_negative": warn("stock >= 0")},
)

ORDERS = Entity(
    topic=Topic(
        "orders",
        """
        id BIGINT NOT NULL, customer_id INT NOT NULL, status STRING NOT NULL, total DECIMAL(12, 2) NOT NULL,
        placed TIMESTAMP NOT NULL, shipped TIMESTAMP, __source_lsn BIGINT, __source_ts_ms TIMESTAMP_MILLIS
        """,
        topic="inventory.public.orders",
        key_encoding=KeyEncoding.JSON,
        envelope=Debezium(),
        changelog=True,
    ),
    key="id",
    columns="id, customer_id, status, total, placed, shipped, __source_lsn AS lsn",
    sequence_by="lsn",
    occurred_at="__source_ts_ms",
)

PROMOTIONS = Entity(
    topic=Topic(
        "promotions",
        """
        sku STRING NOT NULL, discount INT NOT NULL, until DATE, __source_lsn BIGINT,
        __source_ts_ms TIMESTAMP_MILLIS
        """,
        topic="inventory.public.promotions",
        key_encoding=KeyEncoding.JSON,
        envelope=Debezium(),
        changelog=True,
    ),
    key="sku",
    columns="sku, discount, until, __source_lsn AS lsn",
    sequence_by="lsn",
    occurred_at="__source_ts_ms",
)
