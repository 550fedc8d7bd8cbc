"""The users changelog, its latest state, and the rules for it."""

from expectations.silver import latest, unless_deleted
from expectations.suites import Severity
from lakehouse.contracts.topics import Topic
from silver.entity import Entity

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
)

USERS_SUITE = latest(
    USERS,
    unless_deleted("created_at_is_there", "created_at IS NOT NULL"),
    unless_deleted(
        "created_in_this_age", "created_at BETWEEN '2000-01-01' AND now() + INTERVAL 1 DAY", Severity.WARNING
    ),
    unless_deleted(
        "email_is_an_address",
        "email_address IS NULL OR email_address RLIKE '^[^@ ]+@[^@ ]+[.][^@ ]+$'",
        Severity.WARNING,
    ),
    unless_deleted("merged_into_another", "merged_at IS NULL OR parent_user_id != id", Severity.WARNING),
)
