"""The project that `lakehouse init` makes, with a sale of each kind."""

import json
from dataclasses import dataclass

import pulsar

from pulsar_lakehouse.pulsar.endpoint import Endpoint, connect
from pulsar_lakehouse.settings import Settings

STORES = {"1": {"id": 1, "city": "Berlin"}, "2": {"id": 2, "city": "Porto"}}
SALES = {
    "enriched": {"id": 1, "storeId": 1, "cents": 250, "soldAt": 1767621600000},
    "duplicate": {"id": 1, "storeId": 1, "cents": 250, "soldAt": 1767621600000},
    "waiting": {"id": 4, "storeId": 4, "cents": 475, "soldAt": 1767708000000},
    "malformed": {"id": 5, "storeId": 1, "cents": -1, "soldAt": 1767708000000},
    "unreadable": {"id": 6},
}


@dataclass(frozen=True)
class Sold:
    variables: dict[str, str]
    """The environment of the project."""
    settings: Settings
    endpoint: Endpoint
    ids: dict[str, pulsar.MessageId]
    """By kind of sale, or key of a store."""


def send(settings: Settings, endpoint: Endpoint, topic: str, payload: object, key: str = "") -> pulsar.MessageId:
    client = connect(endpoint, settings)
    producer = client.create_producer(f"persistent://{settings.pulsar.namespace}/{topic}")
    id = producer.send(json.dumps(payload).encode(), partition_key=key)
    client.close()
    return id
