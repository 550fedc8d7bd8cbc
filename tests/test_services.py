"""The project of the page about services, with messages: orders, and what a geocoder answers."""

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from pulsar_lakehouse.testing import run_messages
from tests.pipeline.projects import project
from tests.test_docs import ROOT, blocks


def order(id: int, address: str) -> dict[str, Any]:
    return {"payload": {"id": id, "shipTo": address, "createdAt": 1767268800000}}


def answer(address: str, **said: object) -> dict[str, Any]:
    return {"key": address, "payload": {"address": address, **said}}


def test_the_project_of_the_page_joins_what_it_says(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    declared, test = blocks(ROOT / "docs" / "services.md", "python")
    project(tmp_path, orders=declared)
    monkeypatch.chdir(tmp_path)
    home, waiting = tmp_path / "home", "SELECT id, reason FROM quarantine.waiting_orders ORDER BY id"
    sql = run_messages(home, orders=[order(1, "Rua A 1"), order(2, "nowhere"), order(3, "Torstr. 1")])
    assert sql(waiting) == [(1, "place missing"), (2, "place missing"), (3, "place missing")]
    answers = [answer("Rua A 1", lat=41.1, lon=-8.6), answer("nowhere"), answer("Torstr. 1", lat="north")]
    sql = run_messages(home, geocode=answers)
    gold = "SELECT id, place.lat, place.lon FROM gold.enriched_orders ORDER BY id"
    assert sql(gold) == [(1, 41.1, -8.6), (2, None, None)]
    assert sql("SELECT key, reason FROM quarantine.malformed") == [("Torstr. 1", "lat is no double: north")]
    assert sql(waiting) == [(3, "place missing")]
    named: dict[str, Any] = {}
    exec(test, named)
    named["test_orders_have_a_place"](tmp_path / "other")
