"""The customers changelog, its latest state, and the rules for it."""

from expectations.silver import latest, unless_deleted
from lakehouse.contracts.topics import Topic
from silver.entity import Entity

CUSTOMERS = Entity(
    topic=Topic(
        "customers",
        "customerId STRING NOT NULL, fullName STRING NOT NULL, email STRING, city STRING, updateTime BIGINT NOT NULL",
        record="Customer",
        changelog=True,
    ),
    key="customer_id",
    columns="""
        customerId AS customer_id,
        fullName AS full_name,
        email,
        city,
        timestamp_millis(updateTime) AS updated_at
    """,
)

CUSTOMERS_SUITE = latest(CUSTOMERS, unless_deleted("name_is_there", "length(full_name) > 0"))
