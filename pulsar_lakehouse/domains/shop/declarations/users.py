"""The users changelog, its latest state, and the checks of it."""

from pulsar_lakehouse import Entity, Topic, warn

USERS_TOPIC = Topic(
    "users",
    """
        id BIGINT NOT NULL,
        firstName STRING,
        lastName STRING,
        emailAddress STRING,
        createdAt TIMESTAMP_MILLIS NOT NULL,
        deletedAt TIMESTAMP_MILLIS,
        mergedAt TIMESTAMP_MILLIS,
        parentUserId BIGINT
    """,
    record="User",
    changelog=True,
)

USERS = Entity(
    topic=USERS_TOPIC,
    key="id",
    columns={
        "id": "id",
        "first_name": "firstName",
        "last_name": "lastName",
        "email_address": "emailAddress",
        "created_at": "createdAt",
        "merged_at": "nullif(mergedAt, timestamp_millis(-1))",
        "parent_user_id": "nullif(parentUserId, -1)",
    },
    deleted_at="nullif(deletedAt, timestamp_millis(-1))",
    checks={
        "created_in_this_age": warn("created_at BETWEEN '2000-01-01' AND now() + INTERVAL 1 DAY"),
        "email_is_an_address": warn("email_address IS NULL OR email_address RLIKE '^[^@ ]+@[^@ ]+[.][^@ ]+$'"),
        "merged_into_another": warn("merged_at IS NULL OR parent_user_id != id"),
    },
)
