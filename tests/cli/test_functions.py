"""The project of the page about functions, with messages: good ones, and some on which a function fails."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from pulsar_lakehouse.spark.functions import declare
from pulsar_lakehouse.testing import run_messages
from tests.cli.outcome import Command
from tests.pipeline.projects import project
from tests.test_docs import ROOT, blocks

NOON = 1767268800000


def customer(id: int, email: str | None) -> dict[str, Any]:
    return {"key": str(id), "payload": {"id": id, "email": email}}


def order(id: int, customer: int, cents: int, note: str | None = None) -> dict[str, Any]:
    return {"payload": {"id": id, "customerId": customer, "cents": cents, "note": note, "at": NOON}}


@pytest.fixture
def files() -> Iterator[dict[str, str]]:
    page, names = ROOT / "docs" / "functions.md", ("functions", "shop", "orders_by_domain", "words")
    yield dict(zip(names, (*blocks(page, "python"), *blocks(page, "sql")), strict=True))
    declare([])


def test_the_project_of_the_page_does_what_it_says(
    files: dict[str, str], lakehouse: Command, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A corrected function is told by plan, and messages on which it failed come back."""
    project(tmp_path, **files)
    sql = run_messages(
        tmp_path / "home",
        customers=[
            *(customer(1, "ada@Shop.example"), customer(2, "nobody"), customer(3, None)),
            *({"key": "1", "payload": None}, customer(4, "@X")),
        ],
        orders=[
            *(order(id, 4, id * 100, "as  As usual") for id in (1, 2, 5)),
            *(order(6, 2, 1), order(7, 3, 50), order(8, 4, 1, "one two three four five")),
        ],
    )
    customers = "SELECT id, domain, deleted_at IS NULL FROM silver.customers ORDER BY id"
    assert sql(customers) == [(1, None, False), (3, None, True), (4, "x", True)]
    assert sql("SELECT topic, key, reason FROM quarantine.malformed ORDER BY topic") == [
        ("customers", "2", "function domain_of: ValueError: an address without @"),
        ("orders", None, "fails note_is_short"),
    ]
    by_domain = "SELECT domain, orders, CAST(cents AS INT), typical_cents FROM gold.orders_by_domain ORDER BY orders"
    assert sql(by_domain) == [("unknown", 1, 50, 50), ("x", 3, 800, 200)]
    assert sql("SELECT word, orders FROM gold.words ORDER BY word") == [("as", 6), ("usual", 3)]
    assert lakehouse("validate", "gold.enriched_orders").code == 0
    assert sql("SELECT outcome FROM quality.results WHERE rule = 'note_is_short'") == [("passed",)]

    failing, mended = 'raise ValueError("an address without @")', "return pc.utf8_lower(email)"
    project(tmp_path / "mended", **files | {"functions": files["functions"].replace(failing, mended)})
    monkeypatch.chdir(tmp_path / "mended")
    plan = json.loads(lakehouse("plan", "--json").out)
    another = "function domain_of: another one, at declarations/functions.py:7"
    assert [(each["table"], each["what"], each["kind"]) for each in plan["changes"]] == [
        ("silver.customers", another, "partial"),
        ("gold.enriched_orders", f"lookup customer: {another}", "partial"),
    ]
    assert plan["command"] == "lakehouse rebuild gold.enriched_orders silver.customers --approve"
    assert lakehouse("quarantine", "retry", "--topic", "customers").code == 0
    assert sql("SELECT id, domain FROM silver.customers WHERE id = 2") == [(2, "nobody")]
