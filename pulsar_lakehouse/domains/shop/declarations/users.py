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
    columns="""
        id, firstName AS first_name, lastName AS last_name, emailAddress AS email_address, createdAt AS created_at,
        nullif(mergedAt, timestamp_millis(-1)) AS merged_at, nullif(parentUserId, -1) AS parent_user_id
    """,
    deleted_at="nullif(deletedAt, timestamp_millis(-1))",
    checks={
        "created_in_this_age": warn("created_at BETWEEN '2000-01-01' AND now() + INTERVAL 1 DAY"),
        "email_is_an_address": warn("email_address IS NULL OR email_address RLIKE '^[^@ ]+@[^@ ]+[.][^@ ]+$'"),
        "merged_into_another": warn("merged_at IS NULL OR parent_user_id != id"),
    },
)
