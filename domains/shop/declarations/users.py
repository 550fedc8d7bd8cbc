"""The users changelog, its latest state, and the rules for it."""

from pyspark.sql.types import LongType, StringType, StructField, StructType

from expectations.silver import latest, unless_deleted
from expectations.suites import Severity
from lakehouse.contracts.topics import Topic, epoch_millis
from silver.entity import Entity

USERS_TOPIC = Topic(
    "users",
    StructType(
        [
            StructField("id", LongType(), nullable=False),
            StructField("firstName", StringType()),
            StructField("lastName", StringType()),
            StructField("emailAddress", StringType()),
            epoch_millis("createdAt", nullable=False),
            epoch_millis("deletedAt"),
            epoch_millis("mergedAt"),
            StructField("parentUserId", LongType()),
        ]
    ),
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
        "created_at": "timestamp_millis(createdAt)",
        "merged_at": "timestamp_millis(nullif(mergedAt, -1))",
        "parent_user_id": "nullif(parentUserId, -1)",
    },
    deleted_at="timestamp_millis(nullif(deletedAt, -1))",
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
