"""Three keyed topics: the account of each user, and each user's favorite color and cheese.

Their tables keep where each row comes from: topic, position, event time and the producer's properties.
"""

from pyspark.sql.types import LongType, StringType, StructField, StructType

from lakehouse.contracts.topics import Topic
from silver.entity import Entity

METADATA = {
    "event_time": "message.event_time",
    "properties": "message.properties",
    "topic": "message.topic",
    "position": "message.position",
}

ACCOUNT_USERS = Entity(
    topic=Topic(
        name="account_users",
        record="AccountUser",
        changelog=True,
        fields=StructType(
            [
                StructField("userId", LongType(), nullable=False),
                StructField("accountId", LongType(), nullable=False),
                StructField("name", StringType()),
            ]
        ),
    ),
    key="user_id",
    columns={"user_id": "userId", "account_id": "accountId", "name": "name", **METADATA},
    keeps_history=False,
)

FAVORITE_COLORS, FAVORITE_CHEESES = (
    Entity(
        topic=Topic(
            name=f"favorite_{what}s",
            record=f"Favorite{what.title()}",
            changelog=True,
            fields=StructType([StructField("userId", LongType(), nullable=False), StructField(what, StringType())]),
        ),
        key="user_id",
        columns={"user_id": "userId", what: what, **METADATA},
        keeps_history=False,
    )
    for what in ("color", "cheese")
)

CHANGELOGS = (ACCOUNT_USERS, FAVORITE_COLORS, FAVORITE_CHEESES)
