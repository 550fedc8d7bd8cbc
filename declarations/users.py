"""The users changelog, and its latest state."""

from pyspark.sql.types import LongType, StringType, StructField, StructType

from lakehouse.contracts.topics import Topic, epoch_millis
from silver.entity import Entity

USERS_TOPIC = Topic(
    name="users",
    record="User",
    changelog=True,
    fields=StructType(
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
)

USERS = Entity(
    topic=USERS_TOPIC,
    key="id",
    key_type="BIGINT",
    columns={
        "id": "id",
        "first_name": "firstName",
        "last_name": "lastName",
        "email_address": "emailAddress",
        "created_at": "timestamp_millis(createdAt)",
        "merged_at": "timestamp_millis(nullif(mergedAt, -1))",
        "parent_user_id": "nullif(parentUserId, -1)",
    },
    types="""
        id BIGINT, first_name STRING, last_name STRING, email_address STRING,
        created_at TIMESTAMP, merged_at TIMESTAMP, parent_user_id BIGINT
    """,
    deleted_at="timestamp_millis(nullif(deletedAt, -1))",
)
