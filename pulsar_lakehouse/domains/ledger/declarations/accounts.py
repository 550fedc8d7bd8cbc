"""The accounts changelog, its latest state, and the checks of it."""

from pulsar_lakehouse import Entity, Topic, warn

ACCOUNTS = Entity(
    topic=Topic(
        "accounts",
        """
        accountId STRING NOT NULL, districtId INT NOT NULL, frequency STRING, creationDate DATE NOT NULL,
        updateTime TIMESTAMP_MILLIS NOT NULL, closedAt TIMESTAMP_MILLIS
        """,
        record="Account",
        changelog=True,
    ),
    key="account_id",
    columns="""
        accountId AS account_id,
        districtId AS district_id,
        frequency,
        creationDate AS created_on,
        updateTime AS updated_at
    """,
    deleted_at="closedAt",
    checks={"district_is_a_number_from_1": warn("district_id >= 1")},
)
