"""The project of the page about joins, with messages: an order, and what it is joined with."""

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from pulsar_lakehouse.testing import run_messages
from tests.pipeline.projects import project
from tests.test_docs import ROOT, blocks

NOON = 1767268800000
MINUTE = 60_000


def order(id: int, minute: int, customer: int = 1) -> dict[str, Any]:
    payload = {"id": id, "customerId": customer, "currency": "PLN", "createdAt": NOON + minute * MINUTE}
    return {"payload": payload}


def payment(id: int, order: int, minute: int) -> dict[str, Any]:
    return {"key": str(id), "payload": {"id": id, "orderId": order, "cents": 250, "paidAt": NOON + minute * MINUTE}}


def rate(euros: float, hour: int) -> dict[str, Any]:
    at = f"2026-01-01T{hour:02}:00:00Z"
    return {"key": "PLN", "payload": {"currency": "PLN", "euros": euros}, "event_time": at}


def test_the_project_of_the_page_joins_what_it_says(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Order 2 is paid a minute too late, and then in time. Order 3 waits for its customer, but for no payment."""
    page = ROOT / "docs" / "joins.md"
    declared, _ = blocks(page, "python")
    *_, revenue = blocks(page, "sql")
    project(tmp_path, orders=declared, revenue_by_hour=revenue)
    monkeypatch.chdir(tmp_path)
    sql = run_messages(
        tmp_path / "home",
        customers=[{"key": "1", "payload": {"id": 1, "city": "Porto"}}],
        rates=[rate(0.23, 9), rate(0.25, 13)],
        payments=[payment(10, 1, -5), payment(20, 2, 61)],
        orders=[order(1, 0), order(2, 0), order(3, 90, customer=9)],
    )
    rows = "SELECT id, customer.city, rate.euros, payment.id FROM gold.enriched_orders ORDER BY id"
    assert sql(rows) == [(1, "Porto", 0.23, 10), (2, "Porto", 0.23, None)]
    assert sql("SELECT id, reason FROM quarantine.waiting_orders") == [(3, "customer missing")]
    sql = run_messages(tmp_path / "home", payments=[payment(21, 2, 60)])
    assert sql(rows) == [(1, "Porto", 0.23, 10), (2, "Porto", 0.23, 21)]
    by_hour = "SELECT CAST(hour AS VARCHAR), city, cents FROM gold.revenue_by_hour"
    assert sql(by_hour) == [("2026-01-01 12:00:00+00", "Porto", 500)]
