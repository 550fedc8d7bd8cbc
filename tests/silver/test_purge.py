"""Deleted keys are purged in the end, and the reconciliation does not take them for lost."""

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from pyspark.sql import SparkSession

from pulsar_lakehouse.domains.shop.declarations.users import USERS
from pulsar_lakehouse.settings import Settings
from pulsar_lakehouse.silver.purge import purge
from pulsar_lakehouse.silver.reconciliation import reconcile_entity
from pulsar_lakehouse.tables.lake import Lake
from tests.lake import land_literally, read
from tests.messages import START, at, millis, tombstone, user
from tests.silver.test_merge import merge_all

YEARS = replace(USERS, keep_deleted=365 * 100)


def test_deleted_keys_that_merges_lead_by_stay(spark: SparkSession, silver: Settings) -> None:
    """User 2 was merged into 1. Users 1, 2 and 3 were deleted."""
    gone: dict[str, Any] = {"deletedAt": millis(at(1))}
    changes = [
        user(1, **gone),
        user(2, place=1, mergedAt=millis(at(0)), parentUserId=1, **gone),
        user(3, place=2, **gone),
    ]
    land_literally(Lake(spark, silver), changes)
    merge_all(Lake(spark, silver), [changes])
    into = "CASE WHEN merged_at IS NOT NULL THEN parent_user_id ELSE nullif(1 / (id - 3), -0.5) END"  # fails on user 3
    assert purge(Lake(spark, silver), USERS, merges=[into]) == 1
    assert {row["id"] for row in read(silver, USERS.table.name)} == {1, 2}
    assert reconcile_entity(Lake(spark, silver), USERS).holds


def test_long_deleted_keys_are_forgotten(spark: SparkSession, silver: Settings) -> None:
    """User 3 was deleted just now. User 4 will be deleted in some years."""
    now = (datetime.now(UTC) - START).total_seconds() / 60
    changes = [user(1), user(2, place=1), tombstone("users", "2", when=1, place=2), user(3, place=3)]
    changes.append(tombstone("users", "3", when=now, place=4))
    changes.append(user(4, place=5, deletedAt=millis(at(10_000_000))))
    land_literally(Lake(spark, silver), changes)
    merge_all(Lake(spark, silver), [changes])
    assert purge(Lake(spark, silver), YEARS) == 0
    assert (purge(Lake(spark, silver), USERS), purge(Lake(spark, silver), USERS)) == (1, 0)
    assert {row["id"] for row in read(silver, USERS.table.name)} == {1, 3, 4}
    assert len(read(silver, USERS.history.name)) == 6
    balance = reconcile_entity(Lake(spark, silver), USERS)
    assert balance.accounted == {"current": 3, "superseded": 1, "purged": 2, "malformed": 0}
    assert balance.holds
    Lake(spark, silver).table(USERS.table.name).delta.delete("id = 1")
    assert reconcile_entity(Lake(spark, silver), USERS).difference == 1
