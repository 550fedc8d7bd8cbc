"""The project of the page about kinds and rows, with messages: those of a shop, all in one topic."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.test_docs import ROOT, blocks

TEST = """
from pathlib import Path
from pulsar_lakehouse.jobs.steps import reconcile_all
from pulsar_lakehouse.settings import load_settings
from pulsar_lakehouse.spark.session import start_spark
from pulsar_lakehouse.tables.lake import Lake
from pulsar_lakehouse.testing import run_messages

NOON = 1767268800000

def of_kind(kind, **message):
    return {"properties": {"type": kind}, **message}

def order(id, *lines, **more):
    return of_kind("order", payload={"orderId": id, "customerId": 1, "orderedAt": NOON, "lines": lines, **more})

PIE, TEA = {"sku": "pie", "cents": 250}, {"sku": "tea", "cents": 120}
sql = run_messages(
    Path("home"),
    customers=[of_kind("customer", key="1", payload={"id": 1, "city": "Porto"}), of_kind("news", payload={})],
    order_lines=[order(1, PIE, TEA), order(1, PIE), order(2), order(3, PIE, {"cents": 1}), order(4, TEA, customerId=9)],
    refunds=[of_kind("refund", payload={"orderId": 1, "cents": 120, "refundedAt": NOON})],
)
print(sql("SELECT order_id, line, sku, customer.city FROM gold.enriched_order_lines ORDER BY 1, 2"))
print(sql("SELECT order_id, line, position.row, reason FROM quarantine.waiting_order_lines"))
print(sql("SELECT order_id, line, duplicate_of.entry_id FROM quarantine.duplicate_order_lines"))
print(sql("SELECT topic, row, reason FROM quarantine.malformed"))
print(sql("SELECT order_id, cents FROM gold.enriched_refunds"))
settings = load_settings(home=Path("home"))
for each in reconcile_all(Lake(start_spark(settings), settings)):
    print(each)
"""


@pytest.mark.spark
def test_the_project_of_the_page_accounts_for_each_kind_and_each_row(tmp_path: Path) -> None:
    """Order 1 comes again with its first line, order 2 has no lines, one of order 3 breaks the contract."""
    project, _ = blocks(ROOT / "docs" / "kinds-and-rows.md", "python")
    (tmp_path / "declarations").mkdir()
    (tmp_path / "declarations" / "events.py").write_text(project)
    outside = {name: value for name, value in os.environ.items() if not name.startswith("LAKEHOUSE_")}
    done = subprocess.run([sys.executable, "-c", TEST], cwd=tmp_path, env=outside, capture_output=True, text=True)
    assert done.stdout.splitlines() == [
        "[(1, 0, 'pie', 'Porto'), (1, 1, 'tea', 'Porto')]",
        "[(4, 0, 0, 'customer missing')]",
        "[(1, 0, 0)]",
        "[('order_lines', -1, 'lines[1].sku is missing')]",
        "[(1, 120)]",
        "customers: 1 landed = 1 current + 0 superseded + 0 malformed",
        "order_lines: 5 rows of 5 messages (1 without rows) landed = 2 enriched + 1 waiting + 1 duplicates + "
        "0 discarded + 1 malformed",
        "refunds: 1 landed = 1 enriched + 0 waiting + 0 duplicates + 0 discarded + 0 malformed",
        "shop_events: 8 landed = 1 customers + 5 order_lines + 1 refunds + 1 other",
    ], done.stderr[-2000:]
