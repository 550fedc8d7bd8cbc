"""The items changelog, its latest state, and the rules for it."""

from expectations.silver import latest, unless_deleted
from expectations.suites import Severity
from lakehouse.contracts.topics import Topic
from silver.entity import Entity

ITEMS_TOPIC = Topic(
    "items",
    """
        id BIGINT NOT NULL,
        createdAt TIMESTAMP_MILLIS NOT NULL,
        adjective STRING,
        category STRING,
        modifier STRING,
        name STRING,
        price DOUBLE NOT NULL
    """,
    record="Item",
    changelog=True,
)

ITEMS = Entity(
    topic=ITEMS_TOPIC,
    key="id",
    columns={
        "id": "id",
        "created_at": "createdAt",
        "adjective": "adjective",
        "category": "category",
        "modifier": "modifier",
        "name": "name",
        "price": "price",
    },
)

ITEMS_SUITE = latest(
    ITEMS,
    unless_deleted("price_is_not_negative", "price >= 0"),
    unless_deleted("price_is_plausible", "price <= 100000", Severity.WARNING),
    unless_deleted("name_is_there", "length(name) > 0", Severity.WARNING),
    unless_deleted(
        "created_in_this_age", "created_at BETWEEN '2000-01-01' AND now() + INTERVAL 1 DAY", Severity.WARNING
    ),
)
