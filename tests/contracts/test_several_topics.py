"""Which topics of Pulsar a declared one stands for, and by whose schema each message is decoded."""

import json
import re

import pytest

from pulsar_lakehouse.contracts.decoder import Decoder, Message
from pulsar_lakehouse.contracts.envelopes import Debezium
from pulsar_lakehouse.contracts.schemas import RegisteredSchema
from pulsar_lakehouse.contracts.topics import Encoding, Topic
from pulsar_lakehouse.errors import ConfigurationError

FIELDS = "id BIGINT NOT NULL, cents BIGINT"
SHOP = "public/shop"
EU, US = "persistent://public/shop/orders-eu", "persistent://public/shop/orders-us"


@pytest.mark.parametrize(
    ("topic", "names"),
    [
        ("", ["persistent://public/shop/orders"]),
        ("orders-eu", [EU]),
        (("orders-eu", EU.replace("shop", "other")), [EU, EU.replace("shop", "other")]),
        (re.compile("orders-.*"), [EU, US]),
        (re.compile("orders-(eu|asia)"), [EU]),
        (re.compile("persistent://public/other/orders-.*"), [EU.replace("shop", "other")]),
        (re.compile(".*DLQ"), [f"{EU}-audit-DLQ"]),
        (re.compile(".*"), ["persistent://public/shop/orders", EU, US]),
    ],
)
def test_a_topic_stands_for_those_that_it_names(
    topic: str | tuple[str, ...] | re.Pattern[str], names: list[str]
) -> None:
    there = [
        *("persistent://public/shop/orders", EU, US, EU.replace("shop", "other"), f"{EU}-audit-DLQ"),
        *(f"{EU}-audit-RETRY", f"{EU}__transaction_pending_ack", "persistent://public/shop/__change_events"),
    ]
    assert [each for each in there if Topic("orders", FIELDS, topic=topic).lands(each, SHOP)] == names


def test_what_names_no_topics_is_told() -> None:
    with pytest.raises(ConfigurationError) as error:
        Topic("orders", FIELDS, topic=["orders-eu"])  # type: ignore[arg-type]
    right = 'a text or re.compile("...") or a tuple of texts, such as ("id",), with the comma'
    assert str(error.value) == f"topic orders: topic: ['orders-eu']: must be {right}"


def test_a_truncation_is_not_of_several_topics() -> None:
    with pytest.raises(ConfigurationError) as error:
        Topic("orders", FIELDS, topic=(EU, US), envelope=Debezium())
    what = "a truncation in one of the topics would delete the rows of all"
    assert str(error.value) == f"topic orders: envelope: {what}: declare each by itself"


def schema(topic: str, version: int, *names: str) -> RegisteredSchema:
    fields = [{"name": name, "type": "long"} for name in names]
    text = json.dumps({"type": "record", "name": "Order", "fields": fields})
    return RegisteredSchema(version=version, type=Encoding.AVRO, data=text, registered_at=version + 1, topic=topic)


def test_each_message_is_decoded_by_the_schema_of_its_own_topic() -> None:
    """Version 0 is another schema in each topic, and only one of them has a version 1."""
    schemas = (schema(EU, 0, "id", "cents"), schema(US, 0, "cents", "id"), schema(US, 1, "id"))
    decoder = Decoder(Topic("orders", FIELDS, topic=(EU, US), encoding=Encoding.AVRO, schemas=schemas))
    two_then_four = bytes([4, 8])
    decoded = [
        decoder.decode(Message(None, payload, version, 10, topic))
        for topic, version, payload in (
            (EU, 0, two_then_four),
            (US, 0, two_then_four),
            (US, 1, b"\x04"),
            (EU, 1, b"\x04"),
        )
    ]
    assert [(each.fields, each.reason) for each in decoded] == [
        ({"id": 2, "cents": 4}, None),
        ({"id": 4, "cents": 2}, None),
        ({"id": 2}, None),
        (None, "unknown schema version: 1"),
    ]
