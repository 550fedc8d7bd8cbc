"""The items changelog, and its latest state."""

from pyspark.sql.types import DoubleType, LongType, StringType, StructField, StructType

from lakehouse.contracts.topics import Topic, epoch_millis
from silver.entity import Entity

ITEMS_TOPIC = Topic(
    name="items",
    record="Item",
    changelog=True,
    fields=StructType(
        [
            StructField("id", LongType(), nullable=False),
            epoch_millis("createdAt", nullable=False),
            StructField("adjective", StringType()),
            StructField("category", StringType()),
            StructField("modifier", StringType()),
            StructField("name", StringType()),
            StructField("price", DoubleType(), nullable=False),
        ]
    ),
)

ITEMS = Entity(
    topic=ITEMS_TOPIC,
    key="id",
    key_type="BIGINT",
    columns={
        "id": "id",
        "created_at": "timestamp_millis(createdAt)",
        "adjective": "adjective",
        "category": "category",
        "modifier": "modifier",
        "name": "name",
        "price": "price",
    },
    types="""
        id BIGINT, created_at TIMESTAMP, adjective STRING, category STRING, modifier STRING, name STRING, price DOUBLE
    """,
)
