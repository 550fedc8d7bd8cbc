import re

from pulsar_lakehouse.contracts.topics import Topic
from pulsar_lakehouse.pulsar.topic_names import by_name


def test_topics_by_their_names() -> None:
    stores = Topic("stores", "id BIGINT", topic="Stores-v1")
    sales = Topic("sales", "id BIGINT", topic=("sales-eu", "sales-us"))
    events = Topic("events", "id BIGINT", topic=re.compile("events-.*"))
    found = {name: topic.own_names for name, topic in by_name([stores, sales, events]).items()}
    assert found == {"stores": ("Stores-v1",), "sales-eu": ("sales-eu",), "sales-us": ("sales-us",)}
