"""The project of the page about kinds and rows, with messages: those of a shop, all in one topic."""

from pathlib import Path
from typing import Any

import pytest

from pulsar_lakehouse.jobs.steps import reconcile_all
from pulsar_lakehouse.settings import load_settings
from pulsar_lakehouse.tables.lake import Lake
from pulsar_lakehouse.testing import run_messages
from tests.pipeline.projects import project
from tests.test_docs import ROOT, blocks

NOON = 1767268800000
PIE, TEA = {"sku": "pie", "cents": 250}, {"sku": "tea", "cents": 120}


def of_kind(kind: str, **message: Any) -> dict[str, Any]:
    return {"properties": {"type": kind}, **message}


def order(id: int, *lines: dict[str, Any], customer: int = 1) -> dict[str, Any]:
    payload = {"orderId": id, "customerId": customer, "orderedAt": NOON, "lines": lines}
    return of_kind("order", payload=payload)


def test_the_project_of_the_page_accounts_for_each_kind_and_each_row(
    lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Order 1 comes again with its first line, order 2 has no lines, one of order 3 breaks the contract."""
    declared, _ = blocks(ROOT / "docs" / "kinds-and-rows.md", "python")
    project(tmp_path, events=declared)
    monkeypatch.chdir(tmp_path)
    sql = run_messages(
        tmp_path / "home",
        customers=[of_kind("customer", key="1", payload={"id": 1, "city": "Porto"}), of_kind("news", payload={})],
        order_lines=[
            order(1, PIE, TEA),
            order(1, PIE),
            order(2),
            order(3, PIE, {"cents": 1}),
            order(4, TEA, customer=9),
        ],
        refunds=[of_kind("refund", payload={"orderId": 1, "cents": 120, "refundedAt": NOON})],
    )
    lines = "SELECT order_id, line, sku, customer.city FROM gold.enriched_order_lines ORDER BY 1, 2"
    assert sql(lines) == [(1, 0, "pie", "Porto"), (1, 1, "tea", "Porto")]
    waiting = "SELECT order_id, line, position.row, reason FROM quarantine.waiting_order_lines"
    assert sql(waiting) == [(4, 0, 0, "customer missing")]
    assert sql("SELECT order_id, line, duplicate_of.entry_id FROM quarantine.duplicate_order_lines") == [(1, 0, 0)]
    malformed = "SELECT topic, row, reason FROM quarantine.malformed"
    assert sql(malformed) == [("order_lines", -1, "lines[1].sku is missing")]
    assert sql("SELECT order_id, cents FROM gold.enriched_refunds") == [(1, 120)]
    reconciled = reconcile_all(Lake(lake.spark, load_settings(home=tmp_path / "home")))
    assert [str(each) for each in reconciled] == [
        "customers: 1 landed = 1 current + 0 superseded + 0 malformed",
        "order_lines: 5 rows of 5 messages (1 without rows) landed = 2 enriched + 1 waiting + 1 duplicates + "
        "0 discarded + 1 malformed",
        "refunds: 1 landed = 1 enriched + 0 waiting + 0 duplicates + 0 discarded + 0 malformed",
        "shop_events: 8 landed = 1 customers + 5 order_lines + 1 refunds + 1 other",
    ]
