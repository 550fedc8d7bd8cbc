"""Three keyed topics: the account of each user, and each user's favorite color and cheese.

Their tables keep where each row comes from: topic, position, event time and the producer's properties.
"""

from lakehouse.contracts.topics import Topic
from lakehouse.delta.tables import POSITION
from silver.entity import Entity

METADATA = {
    "event_time": "message.event_time",
    "properties": "message.properties",
    "topic": "message.topic",
    "position": "message.position",
}
METADATA_TYPES = f"event_time TIMESTAMP, properties MAP<STRING, STRING>, topic STRING, position {POSITION}"

ACCOUNT_USERS = Entity(
    topic=Topic(
        "account_users",
        "userId BIGINT NOT NULL, accountId BIGINT NOT NULL, name STRING",
        changelog=True,
    ),
    key="user_id",
    key_type="BIGINT",
    columns={"user_id": "userId", "account_id": "accountId", "name": "name", **METADATA},
    types=f"user_id BIGINT, account_id BIGINT, name STRING, {METADATA_TYPES}",
    keeps_history=False,
)

FAVORITE_COLORS, FAVORITE_CHEESES = (
    Entity(
        topic=Topic(
            f"favorite_{what}s",
            f"userId BIGINT NOT NULL, {what} STRING",
            changelog=True,
        ),
        key="user_id",
        key_type="BIGINT",
        columns={"user_id": "userId", what: what, **METADATA},
        types=f"user_id BIGINT, {what} STRING, {METADATA_TYPES}",
        keeps_history=False,
    )
    for what in ("color", "cheese")
)

CHANGELOGS = (ACCOUNT_USERS, FAVORITE_COLORS, FAVORITE_CHEESES)
