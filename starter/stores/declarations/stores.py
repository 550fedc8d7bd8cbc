"""Stores: a changelog. The last message of a key is the state of a store, and one without a payload deletes it."""

from expectations.silver import latest, unless_deleted
from lakehouse.contracts.topics import Topic
from silver.entity import Entity

STORES = Entity(
    topic=Topic("stores", "id BIGINT NOT NULL, city STRING", changelog=True),
    key="id",
    columns="id, city",
)

STORES_SUITE = latest(STORES, unless_deleted("city_is_there", "length(city) > 0"))
