"""Which messages of a topic are of which kind, and which of none or several."""

from dataclasses import replace
from pathlib import Path

from pyspark.sql import functions as F

from pulsar_lakehouse.bronze.kinds import reconcile_kinds
from pulsar_lakehouse.contracts.decoding import ENCRYPTION, Decoding, of_kind
from pulsar_lakehouse.contracts.topics import Topic
from pulsar_lakehouse.reconciliation import Reconciliation
from pulsar_lakehouse.tables.lake import Lake
from tests.lake import land_literally, own_home
from tests.messages import message

KINDS = {
    "news": "startswith(message.key, 'news')",
    "orders": "kind = 'order'",
    "refunds": "kind = 'refund' OR CAST(id AS INT) < 0",
    "returns": "kind = 'return' OR back",
    "others": "coalesce(kind, 'other') = 'other' AND NOT message.is_tombstone",
}
FIELDS = "id STRING NOT NULL, kind STRING, back BOOLEAN"
TOPICS = [
    Topic(name, FIELDS, topic="shop-events", where=where, kinds=tuple(KINDS.items())) for name, where in KINDS.items()
]
MESSAGES = {
    0: ("1", {"id": "1", "kind": "order"}),
    1: ("1", {"kind": "order"}),
    2: ("news", b"\xff"),
    3: (None, b"\xff"),
    4: ("news", None),
    5: ("1", None),
    6: ("1", {"id": "many", "kind": "other"}),
    7: ("1", {"id": "-1", "kind": "return"}),
    8: ("1", {"id": "1", "kind": None, "back": True}),
    9: ("1", [1]),
}
"""By entry: a key and a payload. The SQL of refunds fails on that of entry 6."""


def test_a_message_is_of_the_kinds_whose_where_is_true(lake: Lake, tmp_path: Path) -> None:
    """What can't be read is of the first kind that needs fields to tell, unless the message says enough."""
    own = Lake(lake.spark, own_home(lake.settings, tmp_path))
    landed = [message("shop_events", payload, key=key, place=place) for place, (key, payload) in MESSAGES.items()]
    land_literally(own, landed, [TOPICS[0].landing])
    decodings = [Decoding(topic=topic, columns="id, kind") for topic in TOPICS]
    bronze = own.table("bronze.shop_events").read()
    found = {
        each.topic.name: sorted(row.position.entry_id for row in bronze.transform(of_kind, decoding=each).collect())
        for each in decodings
    }
    assert found == {"news": [2, 4], "orders": [0, 1, 3, 9], "refunds": [7], "returns": [7, 8], "others": [6, 8]}
    assert reconcile_kinds(own, replace(TOPICS[0].landing), decodings) == Reconciliation(
        topic="shop_events",
        landed=10,
        accounted={"news": 2, "orders": 4, "refunds": 1, "returns": 2, "others": 2, "other": 1},
        problems=("2 messages are of several kinds: let the `where` of each exclude the others",),
    )


def test_what_is_encrypted_is_of_a_kind_though_its_properties_are_too(lake: Lake, tmp_path: Path) -> None:
    """If kinds are told by the message, only what is encrypted is of the first of them; the rest is of none."""
    own = Lake(lake.spark, own_home(lake.settings, tmp_path))
    kinds = tuple((name, f"message.properties['of'] = '{name}'") for name in ("news", "orders"))
    topics = [Topic(name, FIELDS, topic="shop", where=where, kinds=kinds) for name, where in kinds]
    land_literally(own, [message("shop", b"?", key=None, place=place) for place in range(3)], [topics[0].landing])
    encrypted, order = (F.create_map(F.lit(name), F.lit(text)) for name, text in ((ENCRYPTION, "{}"), ("of", "orders")))
    with own.table("bronze.shop").changeable():
        for place, properties in ((0, encrypted), (1, F.map_concat(encrypted, order))):
            own.table("bronze.shop").delta.update(F.col("entry_id") == place, {"properties": properties})
    bronze = own.table("bronze.shop").read()
    found = {
        topic.name: [
            row.position.entry_id
            for row in bronze.transform(of_kind, decoding=Decoding(topic=topic, columns="id")).collect()
        ]
        for topic in topics
    }
    assert found == {"news": [0], "orders": [1]}
