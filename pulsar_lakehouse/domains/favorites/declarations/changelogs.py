"""Three keyed topics: the account of each user, and each user's favorite color and cheese.

Their tables keep where each row comes from: topic, position, event time and the producer's properties.
"""

from pulsar_lakehouse import Entity, Topic

METADATA = {
    "event_time": "message.event_time",
    "properties": "message.properties",
    "topic": "message.topic",
    "position": "message.position",
}

ACCOUNT_USERS = Entity(
    topic=Topic(
        "account_users",
        "userId BIGINT NOT NULL, accountId BIGINT NOT NULL, name STRING",
        record="AccountUser",
        changelog=True,
    ),
    key="user_id",
    columns={"user_id": "userId", "account_id": "accountId", "name": "name", **METADATA},
    keeps_history=False,
)

FAVORITE_COLORS, FAVORITE_CHEESES = (
    Entity(
        topic=Topic(
            f"favorite_{what}s",
            f"userId BIGINT NOT NULL, {what} STRING",
            record=f"Favorite{what.title()}",
            changelog=True,
        ),
        key="user_id",
        columns={"user_id": "userId", what: what, **METADATA},
        keeps_history=False,
    )
    for what in ("color", "cheese")
)

CHANGELOGS = (ACCOUNT_USERS, FAVORITE_COLORS, FAVORITE_CHEESES)
