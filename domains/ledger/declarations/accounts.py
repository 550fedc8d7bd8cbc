"""The accounts changelog, its latest state, and the checks of it."""

from lakehouse.contracts.checks import warn
from lakehouse.contracts.topics import Topic
from silver.entity import Entity

ACCOUNTS = Entity(
    topic=Topic(
        "accounts",
        """
        accountId STRING NOT NULL, districtId INT NOT NULL, frequency STRING, creationDate STRING NOT NULL,
        updateTime BIGINT NOT NULL, closedAt BIGINT
        """,
        record="Account",
        changelog=True,
    ),
    key="account_id",
    columns="""
        accountId AS account_id,
        districtId AS district_id,
        frequency,
        CAST(creationDate AS DATE) AS created_on,
        timestamp_millis(updateTime) AS updated_at
    """,
    deleted_at="timestamp_millis(closedAt)",
    checks={"district_is_a_number_from_1": warn("district_id >= 1")},
)
