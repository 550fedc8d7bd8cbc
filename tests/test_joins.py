"""The project of the page about joins, with messages: an order, and what it is joined with."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.test_docs import ROOT, blocks

TEST = """
from pathlib import Path
from pulsar_lakehouse.testing import run_messages

NOON = 1767268800000
MINUTE = 60_000

def order(id, minute, customer=1):
    payload = {"id": id, "customerId": customer, "currency": "PLN", "createdAt": NOON + minute * MINUTE}
    return {"payload": payload}

def payment(id, order, minute):
    return {"key": str(id), "payload": {"id": id, "orderId": order, "cents": 250, "paidAt": NOON + minute * MINUTE}}

def rate(euros, hour):
    at = f"2026-01-01T{hour:02}:00:00Z"
    return {"key": "PLN", "payload": {"currency": "PLN", "euros": euros}, "event_time": at}

sql = run_messages(
    Path("home"),
    customers=[{"key": "1", "payload": {"id": 1, "city": "Porto"}}],
    rates=[rate(0.23, 9), rate(0.25, 13)],
    payments=[payment(10, 1, -5), payment(20, 2, 61)],
    orders=[order(1, 0), order(2, 0), order(3, 90, customer=9)],
)
ROWS = "SELECT id, customer.city, rate.euros, payment.id FROM gold.enriched_orders ORDER BY id"
print(sql(ROWS))
print(sql("SELECT id, reason FROM quarantine.waiting_orders"))
sql = run_messages(Path("home"), payments=[payment(21, 2, 60)])
print(sql(ROWS))
print(sql("SELECT CAST(hour AS VARCHAR), city, cents FROM gold.revenue_by_hour"))
"""


@pytest.mark.spark
def test_the_project_of_the_page_joins_what_it_says(tmp_path: Path) -> None:
    """Order 2 is paid a minute too late, and then in time. Order 3 waits for its customer, but for no payment."""
    page = ROOT / "docs" / "joins.md"
    project, _ = blocks(page, "python")
    *_, revenue = blocks(page, "sql")
    (tmp_path / "declarations" / "sql").mkdir(parents=True)
    (tmp_path / "declarations" / "orders.py").write_text(project)
    (tmp_path / "declarations" / "sql" / "revenue_by_hour.sql").write_text(revenue)
    outside = {name: value for name, value in os.environ.items() if not name.startswith("LAKEHOUSE_")}
    done = subprocess.run([sys.executable, "-c", TEST], cwd=tmp_path, env=outside, capture_output=True, text=True)
    assert done.stdout.splitlines() == [
        "[(1, 'Porto', 0.23, 10), (2, 'Porto', 0.23, None)]",
        "[(3, 'customer missing')]",
        "[(1, 'Porto', 0.23, 10), (2, 'Porto', 0.23, 21)]",
        "[('2026-01-01 12:00:00+00', 'Porto', 500)]",
    ], done.stderr[-2000:]
