"""The users changelog, its latest state, and the checks of it."""

from pyspark.sql.types import LongType, StringType, StructField, StructType

from lakehouse.contracts.checks import warn
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
    checks={
        "created_in_this_age": warn("created_at BETWEEN '2000-01-01' AND now() + INTERVAL 1 DAY"),
        "email_is_an_address": warn("email_address IS NULL OR email_address RLIKE '^[^@ ]+@[^@ ]+[.][^@ ]+$'"),
        "merged_into_another": warn("merged_at IS NULL OR parent_user_id != id"),
    },
)
