"""Stores: a changelog. The last message of a key is the state of a store, and one without a payload deletes it."""

from pulsar_lakehouse import Entity, Topic, warn

STORES = Entity(
    topic=Topic("stores", "id BIGINT NOT NULL, city STRING", changelog=True),
    key="id",
    columns="id, city",
    checks={"city_is_there": warn("length(city) > 0")},
)
