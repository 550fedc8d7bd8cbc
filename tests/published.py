"""What a consumer sees in a topic that a table is published to, and what it should see."""

import json
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any, NamedTuple

import pulsar

from pulsar_lakehouse.domains.shop.declarations.orders import ORDERS
from pulsar_lakehouse.pulsar.endpoint import Endpoint, connect
from pulsar_lakehouse.settings import Settings
from tests.lake import read
from tests.messages import millis
from tests.oracle import EPOCH

GOLD_TOPIC = "enriched_orders"


class Sent(NamedTuple):
    key: str
    value: dict[str, Any] | None
    sequence: int


def sent(settings: Settings, endpoint: Endpoint, topic: str = GOLD_TOPIC, *, since: int = 0) -> list[Sent]:
    """All messages from version `since` of the table or a later one, partition by partition, in order."""
    client = connect(endpoint, settings)
    found = []
    for index in range(settings.pulsar.partitions):
        name = f"persistent://{settings.pulsar.namespace}/{topic}-partition-{index}"
        reader = client.create_reader(name, pulsar.MessageId.earliest)
        while reader.has_message_available():
            message = reader.read_next(10_000)
            value = None if message.has_null_value() else json.loads(message.data())
            found.append(Sent(message.partition_key(), value, int(message.properties()["sequence"])))
    client.close()
    return [message for message in found if message.sequence >> 32 >= since]


def seen(messages: list[Sent]) -> dict[str, Any]:
    """The values that a consumer holds if it keeps the last message of each key."""
    last = {message.key: message.value for message in messages}
    return {key: value for key, value in last.items() if value is not None}


def gold(settings: Settings) -> dict[str, Any]:
    return {f"{row['invoice_id']}-{row['line_item_id']}": published(row) for row in read(settings, ORDERS.gold_table)}


def published(value: Any) -> Any:
    """A value of gold as it appears in the JSON of a message."""
    match value:
        case datetime():
            return millis(value)
        case date():
            return (value - EPOCH.date()) // timedelta(days=1)
        case Decimal():
            return str(value)
        case dict():
            return {name: published(field) for name, field in value.items() if field is not None}
    return value
