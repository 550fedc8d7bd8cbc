"""The customers changelog, its latest state, and the checks of it."""

from pulsar_lakehouse import Entity, Topic, warn

CUSTOMERS = Entity(
    topic=Topic(
        "customers",
        """
        customerId STRING NOT NULL, fullName STRING NOT NULL, email STRING, city STRING,
        updateTime TIMESTAMP_MILLIS NOT NULL
        """,
        record="Customer",
        changelog=True,
    ),
    key="customer_id",
    columns="""
        customerId AS customer_id,
        fullName AS full_name,
        email,
        city,
        updateTime AS updated_at
    """,
    checks={"name_is_there": warn("length(full_name) > 0")},
)
