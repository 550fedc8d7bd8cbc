"""What the declared tables hold after literal messages. Run `pytest` in the project's folder."""

from decimal import Decimal
from pathlib import Path

from pulsar_lakehouse.testing import run_messages

BERLIN = {"key": "1", "payload": {"id": 1, "city": "Berlin"}}
SALE = {"payload": {"id": 7, "storeId": 1, "cents": 250, "soldAt": 1767225600000}}


def test_sales_are_added_up_by_the_city_of_their_store(tmp_path: Path) -> None:
    sql = run_messages(tmp_path, stores=[BERLIN], sales=[SALE])
    assert sql("SELECT city, sales, revenue FROM gold.revenue_by_city") == [("Berlin", 1, Decimal("2.50"))]


def test_a_sale_waits_until_its_store_is_known(tmp_path: Path) -> None:
    sql = run_messages(tmp_path, sales=[SALE])
    assert sql("SELECT id, reason FROM quarantine.waiting_sales") == [(7, "store missing")]
    sql = run_messages(tmp_path, stores=[BERLIN])
    assert sql("SELECT id, store.city FROM gold.enriched_sales") == [(7, "Berlin")]
