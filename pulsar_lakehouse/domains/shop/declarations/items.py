"""The items changelog, its latest state, and the checks of it."""

from pulsar_lakehouse import Entity, Topic, quarantine, warn

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
    columns="id, createdAt AS created_at, adjective, category, modifier, name, price",
    checks={
        "price_is_not_negative": quarantine("price >= 0"),
        "price_is_plausible": warn("price <= 100000"),
        "name_is_there": warn("length(name) > 0"),
        "created_in_this_age": warn("created_at BETWEEN '2000-01-01' AND now() + INTERVAL 1 DAY"),
    },
)
