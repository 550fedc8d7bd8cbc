"""The ledger on a real broker: its tables and topics hold what follows from the messages alone."""

from collections.abc import Sequence
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from pulsar_lakehouse.domains.ledger.workload import Workload
from pulsar_lakehouse.pulsar.endpoint import Endpoint
from pulsar_lakehouse.settings import Settings
from pulsar_lakehouse.tables.lake import Lake
from tests.domains.ledger.balances import balances, enriched, facts
from tests.domains.rounds import as_published, by, in_table, in_topic, lake_of, run, send, unaccounted
from tests.lake import read
from tests.oracle_lookups import Row

MESSY = Workload(
    customers=40,
    transactions=400,
    missing_customers=0.03,
    missing_accounts=0.03,
    late_transactions=0.1,
    late_customers=0.2,
    moved_customers=0.2,
    deleted_customers=0.2,
    late_accounts=0.1,
    moved_accounts=0.3,
    closed_accounts=0.2,
    duplicates=0.1,
    malformed=0.1,
)
KEYS = {
    "enriched_transactions": ["transaction_id"],
    "balance_by_account": ["account_id"],
    "balance_by_account_and_day": ["account_id", "window_start"],
    "balance_by_customer": ["customer_id"],
    "balance_by_customer_and_week": ["customer_id", "window_start"],
}


@pytest.fixture
def project(settings: Settings, endpoint: Endpoint, tmp_path: Path) -> Settings:
    return lake_of("ledger", settings, endpoint, tmp_path)


@pytest.mark.long
def test_tables_and_topics_follow_from_the_messages(spark: SparkSession, endpoint: Endpoint, project: Settings) -> None:
    first = send(MESSY.first, endpoint, project)
    run(Lake(spark, project))
    late = send(MESSY.late, endpoint, project)
    run(Lake(spark, project))

    gold = enriched(first, late)
    expected: dict[str, Sequence[Row]] = {"enriched_transactions": gold, **balances(gold)}
    for name, rows in expected.items():
        keys = KEYS[name]
        assert in_table(project, f"gold.{name}", keys, rows[0]) == by(keys, rows)
        assert in_topic(project, endpoint, name, keys, rows[0]) == as_published(keys, rows)

    sent = [*first["transactions"], *late["transactions"]]
    waiting = {row["transaction_id"] for row in read(project, "quarantine.waiting_transactions")}
    assert waiting == {fact["transaction_id"] for fact in facts(sent)} - {row["transaction_id"] for row in gold}
    broken = [each for messages in (*first.values(), *late.values()) for each in messages if each.broken]
    assert len(read(project, "quarantine.malformed")) == len(broken) > 0
    assert unaccounted(Lake(spark, project)) == {}
